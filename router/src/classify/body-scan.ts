import type { Prompt, RoutingKey } from '../exchange.ts';
import { hashBytes } from '../kit/block-hash.ts';
import { MemberFinder, readScalarText } from '../kit/json-scan.ts';
import { type KeyPlace, keyFields } from './keys.ts';
import { promptFields, promptOf } from './prompt.ts';

const fields = [...keyFields, 'model', ...promptFields];
const finder = new MemberFinder(fields);
const MODEL = keyFields.length;
const FIRST_PROMPT = MODEL + 1;
/** Of the object in `session_params`. */
const innerFinder = new MemberFinder(['session_id']);

/** Longer keys are replaced by their hash: they are kept, compared and logged. Longer model names are none. */
const MAX_KEY_CHARS = 512;
/** Bytes that a text of so many characters takes at most, as a JSON string: what is longer is not even decoded. */
const MAX_KEY_BYTES = 6 * MAX_KEY_CHARS + 2;

const QUOTE = 0x22;

/** What is asked of a body. Plain data: it may go to another thread. */
export interface BodyQuestion {
  /** Where keys may stand, those in headers left out. */
  readonly places: readonly KeyPlace[];
  /** Without any key in these places the hash of the body is one. */
  readonly wantsContentKey: boolean;
  readonly wantsPrompt: boolean;
}

/** What a body says. */
export interface BodyFacts {
  readonly key: RoutingKey | null;
  /** '' when it names none. */
  readonly model: string;
  readonly prompt: Prompt | null;
}

export const nothingSaid: BodyFacts = { key: null, model: '', prompt: null };

/** Reads whole bodies at their JSON structure, at its top level only: text inside a prompt is never taken for a key. */
export class BodyScan {
  readonly #spans = new Int32Array(2 * fields.length);
  readonly #innerSpans = new Int32Array(2);

  scan(bytes: Buffer, { places, wantsContentKey, wantsPrompt }: BodyQuestion): BodyFacts {
    // What is no JSON object holds nothing to steer by; the engine will say what is wrong with it.
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
      [start, end] = this.#innerSpans as unknown as [number, number];
      if (start < 0) return null;
    }
    const value = keyValue(bytes, start, end);
    return value === '' ? null : { kind: place.kind, value, source: `body:${place.name}` };
  }
}

/** @returns '' for what can't be a key: null, a structure, a faulty string. */
function keyValue(bytes: Buffer, start: number, end: number): string {
  if (end - start <= MAX_KEY_BYTES) return boundedKey(readScalarText(bytes, start, end) ?? '');
  return bytes[start] === QUOTE ? hashOf(bytes.subarray(start + 1, end - 1)) : '';
}

function modelName(bytes: Buffer, start: number, end: number): string {
  if (end - start > MAX_KEY_BYTES) return '';
  const name = readScalarText(bytes, start, end) ?? '';
  return name.length <= MAX_KEY_CHARS ? name : '';
}

/** The key as it is kept. */
export const boundedKey = (key: string): string => (key.length <= MAX_KEY_CHARS ? key : hashOf(Buffer.from(key)));
const hashOf = (key: Buffer): string => `hash:${hashBytes([key]).toString(36)}:${key.length}`;
