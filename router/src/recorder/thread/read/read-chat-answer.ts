import { answerValues } from './answer-values.ts';
import type { TokenPieces } from '../tokens/pieces.ts';
import { type Answer, type ChatSample, readChat } from './read-chat.ts';
import { mended } from './truncated-stream.ts';

/** The end of a stream. JSON has no line feeds in texts, so it can't occur in an answer. */
const DONE = /(^|\n)data: ?\[DONE\]/;

/**
 * The sampled tokens of a response; of a truncated stream those whose ids are known, perhaps none. Throws `Unreadable`.
 * @param isLast false: more of the stream is awaited, and choices that have ended are samples now
 */
export function readAnswer(
  isStream: boolean,
  bytes: Buffer,
  pieces: TokenPieces,
  isLast = true,
): readonly ChatSample[] {
  const values: Answer[] = answerValues(isStream, bytes);
  const isWhole =
    !isStream || (DONE.test(bytes.toString('latin1')) && values.every(({ error }) => error === undefined));
  if (isWhole) return readChat(values);
  const { values: left, finished } = mended(values, pieces, !isLast);
  if (left.length === 0) return [];
  return readChat(left).map((sample) => ({ ...sample, isTorn: !finished.has(sample.index) }));
}
