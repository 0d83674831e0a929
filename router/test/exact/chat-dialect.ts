import { shown } from './hard-text.ts';
import { type Dialect, type Got, partOf } from './clients.ts';
import { answerOf } from './plan.ts';

interface Message {
  readonly role: string;
  readonly content: string;
}

interface ChatEvent {
  readonly choices?: readonly {
    readonly message?: { readonly content: string | null };
    readonly delta?: { readonly content?: string | null };
    readonly finish_reason: string | null;
  }[];
}

/** Clients of `/v1/chat/completions`. */
export const chatDialect: Dialect<readonly Message[]> = {
  start: [],
  ask({ call, state, answer }, step, prompt) {
    const { kept, say, isStopped } = step;
    const asked = { role: isStopped || call === null ? 'user' : 'tool', content: say || 'go on' };
    if (call === null) return [{ role: 'system', content: prompt }, asked];
    if (kept === 100) return [...state, asked];
    const text = shown(partOf(answer, step));
    return [...state.slice(0, -1), { role: 'assistant', content: text }, asked];
  },
  request: (messages, step, rid) => {
    const max_tokens = answerOf(step).length;
    const body = {
      model: 'sim',
      messages,
      max_tokens,
      temperature: 1,
      rid,
      ...(step.asksLogprobs ? { logprobs: true } : {}),
    };
    return { path: '/v1/chat/completions', body };
  },
  answered: (messages, content) => [...messages, { role: 'assistant', content }],
  keyOf: (messages) => JSON.stringify(messages),
  isRerendered: () => false,
  read(parts): Got {
    let text = '';
    let finish = '';
    for (const part of parts) {
      if (!part.startsWith('{')) continue;
      for (const { message, delta, finish_reason: reason } of (JSON.parse(part) as ChatEvent).choices ?? []) {
        text += message?.content ?? delta?.content ?? '';
        finish = reason ?? finish;
      }
    }
    return { text, finish };
  },
};
