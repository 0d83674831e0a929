import { readNpyHead } from '../kit/npy.ts';

/**
 * Routed experts of a generation in two parts, as JSON strings of base64. Each part has a row for each token but its last one, so the rows of
 * the second part are those of all tokens, because its engine computed the tokens of the first part again with the prompt. The rows that the
 * first engine computed are kept: the parts differ only in their number of rows, so the bytes of the first part replace the beginning of the
 * second part's.
 *
 * @returns null if these are not two parts of one generation; the second part's rows stay
 */
export function joinedExperts(first: Buffer, second: Buffer): Buffer | null {
  const before = decoded(first);
  const after = decoded(second);
  if (before === null || after === null) return null;
  // SGLang returns the numbers without a head.
  const [headBefore, head] = [readNpyHead(before)?.end ?? 0, readNpyHead(after)?.end ?? 0];
  if ((headBefore === 0) !== (head === 0)) return null;
  const bytes = before.length - headBefore;
  if (bytes > after.length - head) return null;
  before.copy(after, head, headBefore);
  return Buffer.from(`"${after.toString('base64')}"`);
}

/** null: not a string, because the engine returned no experts. */
const decoded = (json: Buffer): Buffer | null =>
  json[0] === 0x22 ? Buffer.from(json.toString('latin1', 1, json.length - 1), 'base64') : null;
