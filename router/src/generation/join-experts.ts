import { JsonEdit } from '../kit/json-edit.ts';
import { Json } from '../kit/json-members.ts';
import { readNpyHead } from '../kit/npy.ts';

/** What engines call tensors with a row for each token but the last: its experts, and the tokens that sparse attention looked at. */
export const EXPERTS_NAMES = ['routed_experts', 'indexer_topk'] as const;

/**
 * The routed experts of a generation that two engines computed, as base64: a .npy file (vLLM), raw numbers (SGLang), or raw numbers beside their
 * shape in an object (prime-rl's vLLM). Each part has a row for each token but its last one, so the rows of the second part are those of all
 * tokens. The rows that the first engine computed are kept: they replace the beginning of the second part's, whose engine computed these tokens
 * with the prompt, or, as a decode engine, not at all.
 *
 * @returns null if these are not two parts of one generation; the second part's rows stay
 */
export function joinedExperts(first: Buffer, second: Buffer): Buffer | null {
  const before = tensorOf(first);
  const after = tensorOf(second);
  if (before === null || before.rows !== after?.rows) return null;
  if (after.rows === RAW && before.file.length > after.file.length) return null;
  before.file.copy(after.file, after.start, before.start);
  const edit = new JsonEdit(second);
  edit.replace(after.text.start, after.text.end, `"${after.file.toString('base64')}"`);
  return edit.result();
}

interface Tensor {
  /** Where its base64 is. */
  readonly text: Json;
  readonly file: Buffer;
  /** Where the numbers begin in the file. */
  readonly start: number;
  /** Which rows these are: type, shape and bytes of one, and the token of the first, as far as the engine says it. */
  readonly rows: string;
}

/** Numbers without a shape. */
const RAW = '';

/** null: the engine returned no experts, or something else. */
function tensorOf(json: Buffer): Tensor | null {
  const object = Json.object(json);
  const text = object === null ? new Json(json, 0, json.length) : object.get('data');
  if (text?.isText !== true) return null;
  const file = Buffer.from(text.raw().toString('latin1', 1, text.end - text.start - 1), 'base64');
  if (object !== null) {
    const shape = object.get('shape')?.valueIfAny();
    const kind = `${object.get('dtype')?.scalar()} ${object.get('start')?.scalar()}`;
    const rows = Array.isArray(shape) ? rowsOf(kind, shape as readonly number[], file.length) : null;
    return rows === null ? null : { text, file, start: 0, rows };
  }
  const head = readNpyHead(file);
  if (head === null) return { text, file, start: 0, rows: RAW };
  const { type, shape, end: start } = head;
  const rows = shape === null ? null : rowsOf(type, shape, file.length - start);
  return rows === null ? null : { text, file, start, rows };
}

/** null: the numbers are not of this shape. */
function rowsOf(kind: string, shape: readonly number[], bytes: number): string | null {
  const ofOne = bytes / Math.max(1, shape[0] ?? 0);
  return Number.isInteger(ofOne) ? `${kind} ${shape.slice(1).join()} ${ofOne}` : null;
}
