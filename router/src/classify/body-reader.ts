import type { Exchange, RoutingKey } from '../exchange.ts';
import { hashBytes } from '../kit/block-hash.ts';
import { MemberFinder, readScalarText } from '../kit/json-scan.ts';
import type { RequestBody } from '../wire/request-body.ts';
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
const BEYOND_ASCII = /[\u0080-\u00ff]/;
const utf8 = new TextDecoder('utf-8', { fatal: true });

/** Bodies that came in pieces are laid together here, up to this size, instead of in new memory each. */
const SCRATCH_BYTES = 1_048_576;

/**
 * Finds out what policies ask about: the key that steers placement, the group, the prompt, the model. A body is read at its
 * JSON structure, at its top level only: text inside a prompt is never taken for a key.
 */
export class BodyReader {
  readonly #places: readonly KeyPlace[];
  /** Up to here, places in headers come before all places in bodies. */
  readonly #headFirst: number;
  readonly #spans = new Int32Array(2 * fields.length);
  readonly #innerSpans = new Int32Array(2);
  #scratch: Buffer | null = null;

  constructor(places: readonly KeyPlace[]) {
    this.#places = places;
    const firstInBody = places.findIndex((place) => place.in === 'body');
    this.#headFirst = firstInBody < 0 ? places.length : firstInBody;
  }

  /** Reads the head. @returns true: the key is found and no field of the body could come before it. */
  readHead(x: Exchange): boolean {
    // One search instead of two, for the many requests without any of them.
    if (x.head.hasPrefix('x-turnout-')) {
      x.group = boundedKey(x.head.get('x-turnout-group') ?? '');
      x.isLastTurn = x.head.get('x-turnout-session-end') === '1';
    }
    for (let i = 0; i < this.#headFirst; i++) {
      if ((x.key = headerKey(x, this.#places[i]!)) !== null) return true;
    }
    // A body that can't exist holds no key.
    if (x.body.isComplete && x.body.bytes === 0) this.#readRest(x, null);
    return x.key !== null;
  }

  /** Reads the whole body (after `readHead`): the key if there is none yet, the model, and the prompt if it is wanted. */
  readBody(x: Exchange, wantsPrompt: boolean): void {
    const bytes = this.#view(x.body);
    // What is no JSON object holds nothing to steer by; the engine will say what is wrong with it.
    if (finder.find(bytes, 0, bytes.length, this.#spans) < 0) this.#spans.fill(-1);
    if (x.key === null) {
      this.#readRest(x, bytes);
      if (x.key === null && x.body.bytes > 0) {
        x.key = { kind: 'content', value: hashBytes(x.body.pieces).toString(36), source: 'body:hash' };
      }
    }
    const at = this.#spans[2 * MODEL]!;
    if (at >= 0) x.model = modelName(bytes, at, this.#spans[2 * MODEL + 1]!);
    if (wantsPrompt) x.prompt = promptOf(bytes, this.#spans, 2 * FIRST_PROMPT);
  }

  /** The places from the first one in a body on. `bytes` null: headers only. */
  #readRest(x: Exchange, bytes: Buffer | null): void {
    for (let i = this.#headFirst; i < this.#places.length && x.key === null; i++) {
      const place = this.#places[i]!;
      if (place.in === 'header') x.key = headerKey(x, place);
      else if (bytes !== null) x.key = this.#bodyKey(bytes, place);
    }
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

  /** The body's bytes in one piece; good until the next call. */
  #view(body: RequestBody): Buffer {
    if (body.pieces.length < 2 || body.bytes > SCRATCH_BYTES) return body.join();
    this.#scratch ??= Buffer.allocUnsafeSlow(SCRATCH_BYTES);
    let at = 0;
    for (const piece of body.pieces) at += piece.copy(this.#scratch, at);
    return this.#scratch.subarray(0, at);
  }
}

function headerKey(x: Exchange, { kind, name }: KeyPlace): RoutingKey | null {
  // An id that the router made up says nothing of the client.
  if (name === 'x-request-id' && x.isRequestIdOurs) return null;
  const value = x.head.get(name);
  return value === undefined || value === ''
    ? null
    : { kind, value: boundedKey(decoded(value)), source: `header:${name}` };
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

/** Header values come with a byte a character; clients mean UTF-8, and the same key in a body is written so. */
function decoded(value: string): string {
  if (!BEYOND_ASCII.test(value)) return value;
  try {
    return utf8.decode(Buffer.from(value, 'latin1'));
  } catch {
    return value;
  }
}

/** The key as it is kept. */
export const boundedKey = (key: string): string => (key.length <= MAX_KEY_CHARS ? key : hashOf(Buffer.from(key)));
const hashOf = (key: Buffer): string => `hash:${hashBytes([key]).toString(36)}:${key.length}`;
