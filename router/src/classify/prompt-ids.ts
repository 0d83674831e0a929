import { MemberFinder, readString } from '../kit/json-scan.ts';
import type { RequestBody } from '../wire/request-body.ts';
import type { promptFields } from './prompt.ts';

/** The prompt of a request in tokens, if the client sent tokens. */
export interface PromptIds {
  /** Valid until the next call of the reader. */
  readonly ids: Int32Array;
  /** Prompts with different salts share no cached block. */
  readonly salt: string | null;
}

/** The `promptFields` that may hold ids. */
const idFields = ['input_ids', 'token_ids', 'prompt'] satisfies (typeof promptFields)[number][];
const SALT = idFields.length;
const finder = new MemberFinder([...idFields, 'cache_salt']);

/** Larger bodies would block the event loop for too long: they count as having no ids. */
const MAX_BYTES = 1_048_576;
const FIRST_IDS = 16_384;
/** More than any vocabulary needs; nine digits always fit in 31 bits. */
const MAX_DIGITS = 9;
/** Salts are secrets of about 256 bits. */
const MAX_SALT_BYTES = 1_024;

const SP = 0x20;
const COMMA = 0x2c;
const ZERO = 0x30;
const OPEN = 0x5b;
const CLOSE = 0x5d;
const isSpace = (byte: number | undefined): boolean => byte === SP || byte === 0x0a || byte === 0x0d || byte === 0x09;

/** Reads token ids from bodies. The memory is reused: prompts of 100,000 tokens make no garbage. */
export class PromptIdReader {
  readonly #spans = new Int32Array(2 * (idFields.length + 1));
  #ids = new Int32Array(FIRST_IDS);

  /**
   * @param field of the prompt, as classify found it
   * @returns null if there are no ids: text, or invalid JSON. Of several prompts, the first
   */
  read(body: RequestBody, field: string): PromptIds | null {
    const which = (idFields as readonly string[]).indexOf(field);
    if (which < 0 || !body.isComplete || !body.isWhole || body.bytes > MAX_BYTES) return null;
    const bytes = body.join();
    const spans = this.#spans;
    if (finder.find(bytes, 0, bytes.length, spans) < 0) return null;
    const count = this.#readArray(bytes, spans[2 * which]!, spans[2 * which + 1]!);
    if (count <= 0) return null;
    const [saltStart, saltEnd] = [spans[2 * SALT]!, spans[2 * SALT + 1]!];
    const hasSalt = saltStart >= 0 && saltEnd - saltStart <= MAX_SALT_BYTES;
    return { ids: this.#ids.subarray(0, count), salt: hasSalt ? readString(bytes, saltStart, saltEnd) : null };
  }

  /** @returns the number of ids, or -1. `start` -1: no array. */
  #readArray(bytes: Buffer, start: number, end: number): number {
    if (start < 0 || bytes[start] !== OPEN) return -1;
    let at = skipSpace(bytes, start + 1, end);
    // A list of lists is a batch.
    if (bytes[at] === OPEN) at = skipSpace(bytes, at + 1, end);
    let ids = this.#ids;
    for (let count = 0; ;) {
      const from = at;
      let id = 0;
      let digit = (bytes[at]! - ZERO) | 0;
      while (at < end && digit >= 0 && digit <= 9) {
        id = (Math.imul(id, 10) + digit) | 0;
        digit = (bytes[++at]! - ZERO) | 0;
      }
      if (at === from || at - from > MAX_DIGITS) return -1;
      if (count === ids.length) ids = this.#grow();
      ids[count++] = id;
      // Usually a comma comes next, then perhaps one space.
      if (digit !== COMMA - ZERO) {
        at = skipSpace(bytes, at, end);
        if (bytes[at] === CLOSE) return count;
        if (bytes[at] !== COMMA) return -1;
      }
      at++;
      if (bytes[at]! <= SP) at = skipSpace(bytes, at, end);
    }
  }

  #grow(): Int32Array<ArrayBuffer> {
    const larger = new Int32Array(this.#ids.length * 2);
    larger.set(this.#ids);
    this.#ids = larger;
    return larger;
  }
}

function skipSpace(bytes: Buffer, start: number, end: number): number {
  let at = start;
  while (at < end && isSpace(bytes[at])) at++;
  return at;
}
