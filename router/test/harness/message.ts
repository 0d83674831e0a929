/**
 * Just enough HTTP/1.1 to cut recorded bytes into messages. Written apart from the router's own reader on purpose: a
 * mistake there must not be able to hide behind the same mistake here.
 */

export type Field = readonly [name: string, value: string];

/** A message head as it was on the wire. */
export interface WireHead {
  /** Everything up to and with the empty line. */
  readonly headText: string;
  readonly line: string;
  readonly fields: readonly Field[];
  /** The value of the only field of this name, or undefined. Throws when there are several. */
  get(name: string): string | undefined;
  /** All values of a name, in order. */
  all(name: string): string[];
}

/** @returns the head that `bytes` begin with, or null while it is not whole. */
export function readWireHead(bytes: Buffer): WireHead | null {
  const end = bytes.indexOf('\r\n\r\n');
  if (end < 0) return null;
  const text = bytes.toString('latin1', 0, end + 4);
  const [line = '', ...lines] = text.slice(0, -4).split('\r\n');
  const fields = lines.map((each): Field => {
    const colon = each.indexOf(':');
    return [each.slice(0, colon), each.slice(colon + 1).trim()];
  });
  const all = (name: string) =>
    fields.filter(([other]) => other.toLowerCase() === name.toLowerCase()).map(([, value]) => value);
  const get = (name: string) => {
    const values = all(name);
    if (values.length > 1) throw new Error(`${name} is there ${values.length} times:\n${text}`);
    return values[0];
  };
  return { headText: text, line, fields, get, all };
}

/** Follows one body to its end. */
export class WireBody {
  readonly raw: Buffer[] = [];
  readonly payload: Buffer[] = [];
  isComplete = false;
  /** -1: to the end of the connection. */
  #left: number;
  readonly #isChunked: boolean;
  #pending: Buffer = Buffer.alloc(0);

  /** `length`: payload bytes, or how else the body is framed. */
  constructor(length: number | 'chunked' | 'until close') {
    this.#isChunked = length === 'chunked';
    this.#left = typeof length === 'number' ? length : -1;
    this.isComplete = length === 0;
  }

  /** @returns what comes after the body. */
  push(bytes: Buffer): Buffer {
    if (this.isComplete) return bytes;
    if (this.#isChunked) return this.#pushChunked(bytes);
    if (this.#left < 0) {
      this.#take(bytes, bytes);
      return Buffer.alloc(0);
    }
    const taken = Math.min(bytes.length, this.#left);
    this.#left -= taken;
    this.#take(bytes.subarray(0, taken), bytes.subarray(0, taken));
    this.isComplete = this.#left === 0;
    return bytes.subarray(taken);
  }

  #take(raw: Buffer, payload: Buffer): void {
    if (raw.length > 0) this.raw.push(raw);
    if (payload.length > 0) this.payload.push(payload);
  }

  #pushChunked(bytes: Buffer): Buffer {
    let rest = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    for (;;) {
      const lineEnd = rest.indexOf('\r\n');
      const line = lineEnd < 0 ? '' : rest.toString('latin1', 0, lineEnd);
      const size = Number.parseInt(line, 16);
      if (lineEnd >= 0 && Number.isNaN(size)) throw new Error(`not a chunk size: ${JSON.stringify(line)}`);
      const end = size === 0 ? endOfTrailers(rest, lineEnd + 2) : lineEnd + 2 + size + 2;
      if (lineEnd < 0 || end < 0 || end > rest.length) break;
      this.#take(rest.subarray(0, end), rest.subarray(lineEnd + 2, lineEnd + 2 + size));
      rest = rest.subarray(end);
      if (size !== 0) continue;
      this.isComplete = true;
      return rest;
    }
    this.#pending = rest;
    return Buffer.alloc(0);
  }
}

function endOfTrailers(bytes: Buffer, start: number): number {
  for (let at = start; ;) {
    const lineEnd = bytes.indexOf('\r\n', at);
    if (lineEnd < 0) return -1;
    if (lineEnd === at) return lineEnd + 2;
    at = lineEnd + 2;
  }
}

/** The bytes of a text on the wire: one byte a character. */
export const wire = (text: string | Buffer): Buffer => (typeof text === 'string' ? Buffer.from(text, 'latin1') : text);

/** Payload as one chunk. */
export const chunk = (text: string): string => `${Buffer.byteLength(text, 'latin1').toString(16)}\r\n${text}\r\n`;
