/** Anthropic's `POST /v1/messages`, as vLLM 0.32 and SGLang serve it: without token ids. */

import { type ChatApi, type MadeChat, contentText, serveChat } from './chat-calls.ts';
import type { Finish } from '../model/sequence.ts';

const reasons = { stop: 'end_turn', length: 'max_tokens', abort: null } as const;

const endOf = (finish: Finish): object => {
  const isText = finish.type === 'stop' && typeof finish.matched === 'string';
  return {
    stop_reason: isText ? 'stop_sequence' : reasons[finish.type],
    ...(isText ? { stop_sequence: finish.matched } : {}),
  };
};

const head = ({ id, model }: MadeChat): object => ({ id, type: 'message', role: 'assistant', model });

/** Tokens of the prompt that were in the cache are counted apart. */
function usage({ sequence: { prompt, output, cachedTokens } }: MadeChat): object {
  const cached = Math.max(0, cachedTokens);
  return { input_tokens: prompt.length - cached, output_tokens: output.length, cache_read_input_tokens: cached };
}

const api: ChatApi = {
  prefix: 'msg_',
  maxTokens: 'max_tokens',

  messages({ system, messages }) {
    if (!Array.isArray(messages) || messages.length === 0) return 'messages must be a non-empty list';
    const own = (messages as { role: string; content: unknown }[]).map(({ role, content }) => ({
      role,
      content: contentText(content),
    }));
    return system === undefined || system === null ? own : [{ role: 'system', content: contentText(system) }, ...own];
  },

  answer: (_, made) => ({
    ...head(made),
    content: [{ type: 'text', text: made.sequence.text() }],
    ...endOf(made.sequence.finish!),
    usage: usage(made),
  }),

  events({ core }, made, { text, isFirst }) {
    const { finish, output, prompt } = made.sequence;
    const isVllm = core.options.kind === 'vllm';
    const events: object[] = [];
    if (isFirst) {
      const start = isVllm
        ? { stop_reason: null, stop_sequence: null, usage: { input_tokens: prompt.length, output_tokens: 0 } }
        : { usage: { ...usage(made), output_tokens: 0 } };
      const message = { ...head(made), content: [], ...start };
      events.push({ type: 'message_start', message });
      events.push({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } });
    }
    if (text !== '') events.push({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } });
    if (finish !== null) {
      events.push({ type: 'content_block_stop', index: 0 });
      events.push({
        type: 'message_delta',
        delta: endOf(finish),
        usage: isVllm ? usage(made) : { output_tokens: output.length },
      });
      events.push({ type: 'message_stop' });
    }
    return events;
  },
};

export const messages = serveChat(api);
