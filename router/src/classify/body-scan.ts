import type { Prompt, RoutingKey } from '../exchange.ts';
import { hashBytes } from '../kit/block-hash.ts';
import { MemberFinder, readScalarText } from '../kit/json-scan.ts';
import { type KeyPlace, MAX_KEY_CHARS, boundedKey, hashedKey, keyFields, sessionInUser } from './routing-keys.ts';
import { promptFields, promptOf } from './prompt.ts';

const fields = [...keyFields, 'model', ...promptFields];
const finder = new MemberFinder(fields);
const MODEL = keyFields.length;
const FIRST_PROMPT = MODEL + 1;
/** For the objects in `session_params` and `metadata`. */
const innerFields = ['session_id', 'user_id', 'id'];
const innerFinder = new MemberFinder(innerFields);

/** The largest JSON string of that many characters. */
const MAX_KEY_BYTES = 6 * MAX_KEY_CHARS + 2;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** What to read from a body. Plain data, because it may go to another thread. */
export interface BodyQuestion {
  /** Places in the body. */
  readonly places: readonly KeyPlace[];
  /** If no key is found in these places, the hash of the body is the key. */
  readonly wantsContentKey: boolean;
  readonly wantsPrompt: boolean;
}

export interface BodyFacts {
  readonly key: RoutingKey | null;
  /** '' if the body names none. */
  readonly model: string;
  readonly prompt: Prompt | null;
}

export const nothingSaid: BodyFacts = { key: null, model: '', prompt: null };

/** Reads whole bodies at the top level of their JSON, so that text in a prompt is never taken for a key. */
export class BodyScan {
  readonly #spans = new Int32Array(2 * fields.length);
  readonly #innerSpans = new Int32Array(2 * innerFields.length);

  scan(bytes: Buffer, { places, wantsContentKey, wantsPrompt }: BodyQuestion): BodyFacts {
    // A body that is not a JSON object has no keys; the engine reports the error.
    if (finder.find(bytes, 0, bytes.length, this.#spans) < 0) this.#spans.fill(-1);
    let key: RoutingKey | null = null;
    for (let i = 0; i < places.length && key === null; i++) key = this.#bodyKey(bytes, places[i]!);
    if (key === null && wantsContentKey && bytes.length > 0) {
      key = { kind: 'content', value: hashBytes([bytes]).toString(36), source: 'body:hash' };
    }
    const at = this.#spans[2 * MODEL]!;
    return {
      key,
      model: at < 0 ? '' : modelName(bytes, at, this.#spans[2 * MODEL + 1]!),
      prompt: wantsPrompt ? promptOf(bytes, this.#spans, 2 * FIRST_PROMPT) : null,
    };
  }

  #bodyKey(bytes: Buffer, place: KeyPlace): RoutingKey | null {
    const [outer, inner] = place.name.split('.') as [(typeof keyFields)[number], string?];
    const index = 2 * keyFields.indexOf(outer);
    let start = this.#spans[index]!;
    let end = this.#spans[index + 1]!;
    if (start < 0) return null;
    if (inner !== undefined) {
      if (innerFinder.find(bytes, start, end, this.#innerSpans) < 0) return null;
      const at = 2 * innerFields.indexOf(inner);
      start = this.#innerSpans[at]!;
      end = this.#innerSpans[at + 1]!;
      if (start < 0) return null;
    }
    const { kind, isForUser } = place;
    const text = keyValue(bytes, start, end);
    const value = isForUser === true && kind === 'session' ? boundedKey(sessionInUser(text)) : text;
    if (value === '') return null;
    const key = { kind, value, source: `body:${place.name}` };
    return isForUser === true && kind === 'tenant' ? { ...key, mayBeSession: true } : key;
  }
}

/** @returns '' for values that are no key: null, an object, an invalid string */
function keyValue(bytes: Buffer, start: number, end: number): string {
  if (end - start > MAX_KEY_BYTES) {
    if (bytes[start] !== QUOTE) return '';
    const content = bytes.subarray(start + 1, end - 1);
    // Without escapes these are the bytes of the text, however many.
    if (!content.includes(BACKSLASH)) return hashedKey(content);
  }
  return boundedKey(readScalarText(bytes, start, end) ?? '');
}

function modelName(bytes: Buffer, start: number, end: number): string {
  if (end - start > MAX_KEY_BYTES) return '';
  const name = readScalarText(bytes, start, end) ?? '';
  return name.length <= MAX_KEY_CHARS ? name : '';
}
