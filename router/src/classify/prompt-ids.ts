import { MemberFinder, readString } from '../kit/json-scan.ts';
import type { PromptIds } from '../placed-request.ts';
import type { RequestBody } from '../wire/request-body.ts';
import type { promptFields } from './prompt.ts';

/** The `promptFields` that may hold ids. */
const idFields = ['input_ids', 'token_ids', 'prompt'] satisfies (typeof promptFields)[number][];
const SALT = idFields.length;
const finder = new MemberFinder([...idFields, 'cache_salt']);
const spans = new Int32Array(2 * (idFields.length + 1));

/** Larger bodies would block the event loop for too long: they count as having no ids. */
const MAX_BYTES = 1_048_576;
/** Larger than any vocabulary, and fits in 31 bits. */
const MAX_ID = 999_999_999;
/** Salts are secrets of about 256 bits. */
const MAX_SALT_BYTES = 1_024;
const OPEN = 0x5b;

/**
 * @param field of the prompt, as classify found it
 * @returns null if there are no ids: text, or invalid JSON. Of several prompts, the first
 */
export function readPromptIds(body: RequestBody, field: string): PromptIds | null {
  const which = (idFields as readonly string[]).indexOf(field);
  if (which < 0 || !body.isComplete || !body.isWhole || body.bytes > MAX_BYTES) return null;
  const bytes = body.join();
  if (finder.find(bytes, 0, bytes.length, spans) < 0) return null;
  const ids = idsIn(bytes, spans[2 * which]!, spans[2 * which + 1]!);
  if (ids === null) return null;
  const [saltStart, saltEnd] = [spans[2 * SALT]!, spans[2 * SALT + 1]!];
  const hasSalt = saltStart >= 0 && saltEnd - saltStart <= MAX_SALT_BYTES;
  return { ids, salt: hasSalt ? readString(bytes, saltStart, saltEnd) : null };
}

function idsIn(bytes: Buffer, start: number, end: number): Int32Array | null {
  if (start < 0 || bytes[start] !== OPEN) return null;
  let list: unknown[];
  try {
    list = JSON.parse(bytes.toString('latin1', start, end)) as unknown[];
  } catch {
    return null;
  }
  // A list of lists is a batch.
  const ids = Array.isArray(list[0]) ? (list[0] as unknown[]) : list;
  return ids.length > 0 && ids.every(isId) ? Int32Array.from(ids) : null;
}

const isId = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MAX_ID;
