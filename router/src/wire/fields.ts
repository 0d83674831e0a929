import { COLON, CR, HTAB, IS_TOKEN, IS_VALUE, LF, SP } from '../kit/bytes.ts';

/**
 * The field lines of a message head, checked against RFC 9112 section 5 while they are read. Only fields that frame the message or end at
 * this hop are parsed; all others stay bytes in `raw` and are forwarded as they are.
 */

/** Fields of this connection only (RFC 9110 section 7.6.1), or written by the router itself. */
export const HOST = 1;
export const CONNECTION = 2;
export const CONTENT_LENGTH = 3;
export const TRANSFER_ENCODING = 4;
export const EXPECT = 5;
export const UPGRADE = 6;
export const REQUEST_ID = 7;
export const CONTENT_TYPE = 8;
/** x-turnout-timeout: parsed here, because a later search would cost every request. */
export const TIMEOUT = 12;
/** x-turnout-session-end, for the same reason. */
export const SESSION_END = 13;
/** `te`, `trailer`, `keep-alive`, `proxy-connection`: dropped, never read. */
export const HOP = 9;
/** Fields that may have a client's key: forwarded, but their lines are noted. */
export const AUTHORIZATION = 10;
export const API_KEY = 11;

/** The bytes of an ASCII word, for `spells`. */
export function ascii(word: string): Uint8Array {
  return Uint8Array.from(word, (c) => c.charCodeAt(0));
}

const known: { name: Uint8Array; kind: number }[][] = [];
for (const [name, kind] of [
  ['te', HOP],
  ['host', HOST],
  ['expect', EXPECT],
  ['upgrade', UPGRADE],
  ['trailer', HOP],
  ['x-api-key', API_KEY],
  ['connection', CONNECTION],
  ['keep-alive', HOP],
  ['content-type', CONTENT_TYPE],
  ['x-request-id', REQUEST_ID],
  ['authorization', AUTHORIZATION],
  ['content-length', CONTENT_LENGTH],
  ['proxy-connection', HOP],
  ['transfer-encoding', TRANSFER_ENCODING],
  ['x-turnout-timeout', TIMEOUT],
  ['x-turnout-session-end', SESSION_END],
] as const) {
  (known[name.length] ??= []).push({ name: ascii(name), kind });
}

/** Results of reading a line; negative, because other results are indexes. */
export const INCOMPLETE = -1;
export const BAD = -2;

/** The parts of the last line that `readField` read. One object for the process, because reading is synchronous. */
export const field = { kind: 0, nameStart: 0, nameEnd: 0, valueStart: 0, valueEnd: 0, refusal: '' };

/**
 * Reads one field line that starts at `at`.
 *
 * @returns the index after its CRLF, `INCOMPLETE`, or `BAD` with `field.refusal` saying why. A line that is wrong but
 *   not whole yet is `INCOMPLETE`, so that the verdict does not depend on how the bytes were split.
 */
export function readField(bytes: Uint8Array, at: number, end: number): number {
  let i = at;
  while (i < end && IS_TOKEN[bytes[i]!] === 1) i++;
  if (i === end) return INCOMPLETE;
  if (i === at || bytes[i] !== COLON) {
    const first = bytes[at]!;
    return bad(
      bytes,
      i,
      end,
      first === SP || first === HTAB
        ? 'a folded or indented header line (RFC 9112 section 5.2)'
        : 'a header name that is not a token directly followed by ":" (RFC 9112 section 5.1)',
    );
  }
  const nameEnd = i;
  i++;
  while (i < end && (bytes[i] === SP || bytes[i] === HTAB)) i++;
  const valueStart = i;
  while (i < end && IS_VALUE[bytes[i]!] === 1) i++;
  if (i === end) return INCOMPLETE;
  if (bytes[i] !== CR) {
    return bad(bytes, i, end, bytes[i] === LF ? 'a bare LF (RFC 9112 section 2.2)' : 'a control character in a header');
  }
  if (i + 1 === end) return INCOMPLETE;
  if (bytes[i + 1] !== LF) return bad(bytes, i + 1, end, 'a bare CR (RFC 9112 section 2.2)');
  let valueEnd = i;
  while (valueEnd > valueStart && (bytes[valueEnd - 1] === SP || bytes[valueEnd - 1] === HTAB)) valueEnd--;
  field.nameStart = at;
  field.nameEnd = nameEnd;
  field.valueStart = valueStart;
  field.valueEnd = valueEnd;
  field.kind = 0;
  const sameLength = known[nameEnd - at];
  if (sameLength !== undefined) {
    for (const candidate of sameLength) {
      if (spells(bytes, at, nameEnd, candidate.name)) {
        field.kind = candidate.kind;
        break;
      }
    }
  }
  return i + 2;
}

/** Whether `bytes[start, end)` equals `lowerName` in any case. `lowerName` has ASCII letters and `-` only. */
export function spells(bytes: Uint8Array, start: number, end: number, lowerName: Uint8Array): boolean {
  if (end - start !== lowerName.length) return false;
  for (let i = 0; i < lowerName.length; i++) {
    const byte = bytes[start + i]!;
    const folded = byte >= 65 && byte <= 90 ? byte | 0x20 : byte;
    if (folded !== lowerName[i]) return false;
  }
  return true;
}

/** A line is refused when it is complete, so that the result does not depend on how the bytes were split. */
function bad(bytes: Uint8Array, at: number, end: number, refusal: string): number {
  for (let i = at; i < end; i++) {
    if (bytes[i] === LF) {
      field.refusal = refusal;
      return BAD;
    }
  }
  return INCOMPLETE;
}

/** Content-Length is 1*DIGIT (RFC 9110 section 8.6). @returns the bytes announced, -1 for anything else or above 2^53-1. */
export function readLength(bytes: Uint8Array, start: number, end: number): number {
  if (start === end || end - start > 16) return -1;
  let length = 0;
  for (let i = start; i < end; i++) {
    const digit = bytes[i]! - 48;
    if (digit < 0 || digit > 9) return -1;
    length = length * 10 + digit;
  }
  return length <= Number.MAX_SAFE_INTEGER ? length : -1;
}

const CHUNKED = ascii('chunked');
export const isChunkedWord = (bytes: Uint8Array, start: number, end: number): boolean =>
  spells(bytes, start, end, CHUNKED);

/** Not `trim`, which removes 0xA0 too, the last byte of many a UTF-8 character. */
function trimmed(value: string): string {
  let start = 0;
  let end = value.length;
  while (start < end && isBlank(value.charCodeAt(start))) start++;
  while (end > start && isBlank(value.charCodeAt(end - 1))) end--;
  return value.slice(start, end);
}

const UPPER_A = 65;
const UPPER_Z = 90;

const isBlank = (code: number): boolean => code === SP || code === HTAB;

const NO_DROPS: readonly number[] = [];

/** The head of a request or response: its text, and the lines that are not forwarded. */
export abstract class Head {
  /** The whole head, start line to empty line, one character a byte (latin1). */
  raw = '';
  fieldsStart = 0;
  /** Content-Length; -1: absent. */
  contentLength = -1;
  isChunked = false;
  /** The connection closes after this message. */
  isLast = false;
  /** x-request-id; '' if absent. */
  requestId = '';
  /** Start and end in `raw` of each line that is not forwarded, in order. */
  drops: readonly number[] = NO_DROPS;
  /**
   * The start of each field line in `raw` and the end of its name, alternating; null: not noted. Searching the text in lower case for
   * each name costs several times as much.
   */
  protected nameBounds: number[] | null = null;
  /**
   * A bit for the last character of each name (`code & 31`, the same for both cases); -1: not noted. Most names that are searched for are
   * absent, and end like no other.
   */
  protected lastLetters = -1;
  #lower = '';

  /** The first value of the field. @param name in lower case */
  get(name: string): string | undefined {
    const at = this.#lineOf(name);
    if (at < 0) return undefined;
    const start = at + name.length + 1;
    return trimmed(this.raw.slice(start, this.raw.indexOf('\r', start)));
  }

  /** @param prefix in lower case */
  hasPrefix(prefix: string): boolean {
    const { raw, nameBounds } = this;
    if (nameBounds === null) return this.#findStart(`\r\n${prefix}`, this.fieldsStart - 2) >= 0;
    for (let i = 0; i < nameBounds.length; i += 2) if (beginsWith(raw, nameBounds[i]!, prefix)) return true;
    return false;
  }

  /** Names and values of the forwarded fields. */
  pairs(): [string, string][] {
    const lines = this.passedOn().split('\r\n');
    lines.pop();
    return lines.map((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon), trimmed(line.slice(colon + 1))];
    });
  }

  /** Names of fields, in lower case, of which no line is forwarded. */
  droppedNames(): string[] {
    const { raw, drops } = this;
    const names = new Set<string>();
    for (let i = 0; i < drops.length; i += 2) names.add(raw.slice(drops[i], raw.indexOf(':', drops[i])).toLowerCase());
    for (const [name] of this.pairs()) names.delete(name.toLowerCase());
    return [...names];
  }

  /** The forwarded field lines, each with its CRLF. */
  passedOn(): string {
    const { raw, drops } = this;
    const end = raw.length - 2;
    if (drops.length === 0) return raw.slice(this.fieldsStart, end);
    let out = '';
    let from = this.fieldsStart;
    for (let i = 0; i < drops.length; i += 2) {
      if (drops[i]! > from) out += raw.slice(from, drops[i]);
      from = drops[i + 1]!;
    }
    return from < end ? out + raw.slice(from, end) : out;
  }

  /** Removes all lines of this name from the forwarded fields. */
  drop(name: string): void {
    if (this.#lineOf(name) < 0) return;
    for (let at = this.#find(name, this.fieldsStart - 2); at >= 0; at = this.#find(name, at + 2)) {
      this.dropLine(at + 2, this.raw.indexOf('\n', at + 2) + 1);
    }
  }

  /** Sets Content-Length. The lines of other framing were dropped before. @param bodyBytes null: not known, the body is chunked */
  setLength(bodyBytes: number | null): void {
    this.drop('content-length');
    this.contentLength = bodyBytes ?? -1;
    this.isChunked = bodyBytes === null;
    if (bodyBytes !== null) this.add(`content-length: ${bodyBytes}\r\n`);
  }

  /** Adds field lines, each with its CRLF, at the end. */
  add(lines: string): void {
    const from = this.raw.length - 2;
    this.raw = `${this.raw.slice(0, -2)}${lines}\r\n`;
    this.#lower = '';
    this.lastLetters = -1;
    let at = 0;
    do {
      this.nameBounds?.push(from + at, from + lines.indexOf(':', at));
      at = lines.indexOf('\n', at) + 1;
    } while (at > 0 && at < lines.length);
  }

  /** Keeps `drops` sorted and without duplicates. */
  protected dropLine(start: number, end: number): void {
    const { drops } = this;
    let i = drops.length;
    while (i > 0 && drops[i - 2]! >= start) {
      if (drops[i - 2] === start) return;
      i -= 2;
    }
    // Most heads have one such line, and `push` and `splice` would make room for more.
    this.drops = drops.length === 0 ? [start, end] : drops.toSpliced(i, 0, start, end);
  }

  /** Drops the fields that Connection names (RFC 9110 section 7.6.1). @returns false: it names a field that frames or routes */
  protected dropNamed(connection: string): boolean {
    for (const option of connection.toLowerCase().split(',')) {
      const name = trimmed(option);
      if (name === '' || name === 'keep-alive') continue;
      if (name === 'close') this.isLast = true;
      else if (name === 'content-length' || name === 'transfer-encoding' || name === 'host') return false;
      else this.drop(name);
    }
    return true;
  }

  /** @returns the start of the first line of this name; -1: none */
  #lineOf(name: string): number {
    const { raw, nameBounds } = this;
    if (nameBounds === null) {
      const at = this.#find(name, this.fieldsStart - 2);
      return at < 0 ? at : at + 2;
    }
    if ((this.lastLetters & (1 << (name.charCodeAt(name.length - 1) & 31))) === 0) return -1;
    for (let i = 0; i < nameBounds.length; i += 2) {
      const start = nameBounds[i]!;
      if (nameBounds[i + 1]! - start === name.length && beginsWith(raw, start, name)) return start;
    }
    return -1;
  }

  #find(name: string, from: number): number {
    return this.#findStart(`\r\n${name}:`, from);
  }

  #findStart(start: string, from: number): number {
    if (this.#lower === '') this.#lower = this.raw.toLowerCase();
    return this.#lower.indexOf(start, from);
  }
}

/** @param lower in lower case */
function beginsWith(text: string, at: number, lower: string): boolean {
  for (let i = 0; i < lower.length; i++) {
    const code = text.charCodeAt(at + i);
    const lowered = code >= UPPER_A && code <= UPPER_Z ? code | 0x20 : code;
    if (lowered !== lower.charCodeAt(i)) return false;
  }
  return true;
}
