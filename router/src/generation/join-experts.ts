import { type NpyHead, readNpyHead } from '../kit/npy.ts';

/**
 * The routed experts of a generation that two engines computed, as JSON strings of base64: a .npy file (vLLM), or raw numbers (SGLang). Each
 * part has a row for each token but its last one, so the rows of the second part are those of all tokens. The rows that the first engine
 * computed are kept: they replace the beginning of the second part's, whose engine computed these tokens with the prompt, or, as a decode
 * engine, not at all.
 *
 * @returns null if these are not two parts of one generation; the second part's rows stay
 */
export function joinedExperts(first: Buffer, second: Buffer): Buffer | null {
  const before = decoded(first);
  const after = decoded(second);
  if (before === null || after === null) return null;
  const [head, own] = [readNpyHead(before), readNpyHead(after)];
  if (head === null || own === null) {
    if (head !== own || before.length > after.length) return null;
  } else {
    const row = rowOf(after, own);
    if (row === null || row !== rowOf(before, head)) return null;
  }
  before.copy(after, own?.end ?? 0, head?.end ?? 0);
  return Buffer.from(`"${after.toString('base64')}"`);
}

/** Type, shape and bytes of a row; null: not known. */
function rowOf(file: Buffer, { type, shape, end }: NpyHead): string | null {
  const bytes = (file.length - end) / Math.max(1, shape?.[0] ?? 0);
  return shape !== null && Number.isInteger(bytes) ? `${type} ${shape.slice(1).join()} ${bytes}` : null;
}

/** null: not a string, because the engine returned no experts. */
const decoded = (json: Buffer): Buffer | null =>
  json[0] === 0x22 ? Buffer.from(json.toString('latin1', 1, json.length - 1), 'base64') : null;
