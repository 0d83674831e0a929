import { shown } from './hard-text.ts';
import { type Dialect, type Got, partOf } from './clients.ts';
import { answerOf } from './plan.ts';

interface GenerateEvent {
  readonly text?: string;
  readonly output_ids?: readonly number[];
  readonly meta_info?: { readonly finish_reason: { readonly type: string } | null; readonly completion_tokens: number };
}

/** Clients of SGLang's `/generate` that send text. */
export const generateDialect: Dialect<string> = {
  start: '',
  ask({ call, state, isStopped, answer }, step, prompt) {
    const { kept, closing, say } = step;
    const asked = `<|im_start|>user\n${say || 'go on'}<|im_end|>\n<|im_start|>assistant\n`;
    if (call === null) return `<|im_start|>system\n${prompt}<|im_end|>\n${asked}`;
    if (kept === 100 && say === '' && !isStopped) return state;
    const left = shown(answer.slice(partOf(answer, step).length));
    const text = kept === 100 || !state.endsWith(left) ? state : state.slice(0, state.length - left.length);
    return `${text}${closing}${asked}`;
  },
  request: (text, step, rid) => {
    const sampling_params = { max_new_tokens: answerOf(step).length, temperature: 1 };
    return { path: '/generate', body: { text, rid, return_logprob: step.asksLogprobs, sampling_params } };
  },
  answered: (state, text) => state + text,
  keyOf: (state) => state,
  isRerendered: () => false,
  read(parts): Got {
    let text = '';
    let ids = 0;
    let finish = '';
    for (const part of parts) {
      if (!part.startsWith('{')) continue;
      const event = JSON.parse(part) as GenerateEvent;
      if (event.meta_info === undefined) continue;
      finish = event.meta_info.finish_reason?.type ?? '';
      ids += event.output_ids!.length;
      // Events of either kind: with all that there is so far, or with what is new.
      if (event.output_ids!.length === event.meta_info.completion_tokens) {
        text = event.text!;
        ids = event.output_ids!.length;
      } else text += event.text!;
    }
    return { text, finish };
  },
};
