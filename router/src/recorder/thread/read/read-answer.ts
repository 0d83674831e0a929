import { textOf } from './message.ts';
import { type Answer, readChat } from './read-chat.ts';
import { answerValues } from './answer-values.ts';
import { readGenerate, readGenerateEvents } from './read-generate.ts';
import { readInference } from './read-inference.ts';
import type { CaptureDialect } from '../../shared/read-request.ts';
import type { Sampled } from './sampled.ts';

/** The samples in the response of an engine. Throws `Unreadable`. */
export function readAnswer(dialect: CaptureDialect, isStream: boolean, bytes: Buffer): Sampled[] {
  const values = answerValues(isStream, bytes);
  if (dialect === 'completions') return readCompletions(values);
  if (dialect === 'inference') return readInference(values);
  return isStream ? readGenerateEvents(values) : readGenerate(values[0]);
}

/**
 * A complete response of `/v1/completions` with `return_token_ids` (vLLM 0.10 and later, SGLang), or the received events of a stream, each
 * with the new tokens. Its choices are those of a chat, with a text in place of a message.
 */
function readCompletions(values: readonly Answer[]): Sampled[] {
  const events = values.filter(({ choices, error }) => choices !== undefined && error === undefined);
  if (events.every(({ choices = [] }) => choices.length === 0)) return [];
  return readChat(events).map((choice) => {
    const { message, promptIds, isTorn: _, logprobs, ...sample } = choice;
    return {
      ...sample,
      text: Buffer.from(textOf(message.content) ?? ''),
      promptTokens: promptIds?.length ?? -1,
      // Not returned if the request does not ask for them.
      logprobs: logprobs?.every(Number.isNaN) === true ? null : logprobs,
    };
  });
}
