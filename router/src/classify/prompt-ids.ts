import { MemberFinder, readString } from '../kit/json-scan.ts';
import type { RequestBody } from '../wire/request-body.ts';
import type { promptFields } from './prompt.ts';

/** The prompt of a request in tokens, where the client sent tokens. */
export interface PromptIds {
  /** Good until the next call of the reader. */
  readonly ids: Int32Array;
  /** Who names another one shares no cached block with it. */
  readonly salt: string | null;
}

/** Of `promptFields` those that may hold ids. */
const idFields = ['input_ids', 'token_ids', 'prompt'] satisfies (typeof promptFields)[number][];
const SALT = idFields.length;
const finder = new MemberFinder([...idFields, 'cache_salt']);

/** Larger bodies hold the event loop for too long: they count as having no ids. */
const MAX_BYTES = 1_048_576;
const FIRST_IDS = 16_384;
/** No vocabulary is near; and nine digits always fit into 31 bits. */
const MAX_DIGITS = 9;
/** Salts are secrets of 256 bits or so. */
const MAX_SALT_BYTES = 1_024;

const SP = 0x20;
const COMMA = 0x2c;
const ZERO = 0x30;
const OPEN = 0x5b;
const CLOSE = 0x5d;
const isSpace = (byte: number | undefined): boolean => byte === SP || byte === 0x0a || byte === 0x0d || byte === 0x09;

/** Reads token ids out of bodies. Keeps the memory for them: prompts of 100,000 tokens make no garbage. */
export class PromptIdReader {
  readonly #spans = new Int32Array(2 * (idFields.length + 1));
  #ids = new Int32Array(FIRST_IDS);

  /**
   * @param field under which the prompt stands, as classify found it
   * @returns null when there are no ids there: text, or nothing that an engine would take. Of several prompts: the first.
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

  /** @returns how many ids there are, -1 for something else. `start` -1: nothing at all. */
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
      // In most lists a comma stands here, then maybe one space.
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
