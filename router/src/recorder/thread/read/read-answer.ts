import { textOf } from './message.ts';
import { type Answer, readChat } from './read-chat.ts';
import { answerValues } from './answer-values.ts';
import { readGenerate, readGenerateEvents } from './read-generate.ts';
import type { CaptureDialect } from '../../shared/read-request.ts';
import type { Sampled } from './sampled.ts';

/** The samples in the response of an engine. Throws `Unreadable`. */
export function readAnswer(dialect: CaptureDialect, isStream: boolean, bytes: Buffer): Sampled[] {
  const values = answerValues(isStream, bytes);
  if (dialect !== 'generate') return readChoices(values, dialect === 'completions');
  return isStream ? readGenerateEvents(values) : readGenerate(values[0]);
}

/**
 * A complete response of `/v1/completions` with `return_token_ids` (vLLM 0.10 and later, SGLang) or of vLLM's `/inference/v1/generate` (0.32),
 * or the received events of a stream, each with the new tokens. Its choices are those of a chat, with a text, or with ids alone, in place of a
 * message.
 */
function readChoices(values: readonly Answer[], hasText: boolean): Sampled[] {
  const events = values.filter(({ choices, error }) => choices !== undefined && error === undefined);
  if (events.every(({ choices = [] }) => choices.length === 0)) return [];
  return readChat(events).map((choice) => {
    const { message, promptIds, isTorn: _, logprobs, ...sample } = choice;
    return {
      ...sample,
      text: hasText ? Buffer.from(textOf(message.content) ?? '') : null,
      promptTokens: promptIds?.length ?? -1,
      // Not returned if the request does not ask for them.
      logprobs: logprobs?.every(Number.isNaN) === true ? null : logprobs,
    };
  });
}
