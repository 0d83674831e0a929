import { type Answer, readChat } from '../chat/read-chat.ts';
import { textOf } from '../chat/message.ts';
import type { Sampled } from './sampled.ts';

/**
 * A whole answer of `/v1/completions` with `return_token_ids` (vLLM 0.10 and later, SGLang), or the events of a stream as far as it came: each
 * with what is new. Its choices are those of a chat, with a text in place of a message.
 */
export function readCompletions(values: readonly Answer[]): Sampled[] {
  const events = values.filter(({ choices, error }) => choices !== undefined && error === undefined);
  if (events.every(({ choices = [] }) => choices.length === 0)) return [];
  return readChat(events).map(({ message, promptIds, isTorn: _, logprobs, ...sample }) => ({
    ...sample,
    text: Buffer.from(textOf(message.content) ?? ''),
    promptTokens: promptIds?.length ?? -1,
    // None are known where the request asks for none.
    logprobs: logprobs?.every(Number.isNaN) === true ? null : logprobs,
  }));
}
