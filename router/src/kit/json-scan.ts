/**
 * Finds the members of a JSON object (RFC 8259) in its bytes: nothing is decoded, built or written anew, so numbers
 * keep all their digits and a prompt of megabytes costs a few calls of memchr. What it answers is right for every
 * document that JSON.parse accepts. It checks the form of the object or array that is scanned and every key in it; of
 * the values it follows strings and brackets only. So it also accepts, for the engine to refuse:
 * - any word in place of a number or literal (`01`, `NaN`, `nul`; Python's json reads NaN too),
 * - control characters, unknown escapes and bytes that are not UTF-8 within string values (the last in keys as well),
 * - within a nested value anything but an open string or bracket: `[1 2,,"a""b"]`, `{3}`, `[}`,
 * - whatever comes after the end, which is the caller's to look at.
 * Nesting may be of any depth, and time is linear in the bytes. What lies beyond `end` never changes an answer, but a
 * string that is not closed is looked for there once: after a -1, scan no further.
 */
import { COLON, CR, HEX_VALUE, HTAB, LF, SP } from './bytes.ts';

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const LETTER_U = 0x75;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
/** The bit in which `[` and `{`, `]` and `}` differ, and no two other bytes that are looked for. */
const CURLY = 0x20;

/** Bytes of numbers and literals: the visible characters that are not JSON's own marks. */
const IS_SCALAR = Uint8Array.from({ length: 256 }, (_, byte) =>
  byte > SP && byte < 127 && !'",:[\\]{}'.includes(String.fromCharCode(byte)) ? 1 : 0,
);

/** The character of each escape letter; -1: not an escape. `u`, which has four digits, is not in the table. */
const ESCAPED = new Int16Array(256).fill(-1);
for (const [i, letter] of [...'"\\/bfnrt'].entries()) {
  ESCAPED[letter.charCodeAt(0)] = '"\\/\b\f\n\r\t'.charCodeAt(i);
}

/**
 * So many bytes of a string are read one by one before memchr is called, which costs 30 ns however near the quote is.
 * Of 12 to 32, 16 was best over prose, and over code with its many escaped quotes.
 */
const NEAR = 16;
/** Arrays with so many bytes of scalars before any string or bracket are searched natively, in up to five calls. */
const LONG_RUN = 64;

/**
 * Called with the key without its quotes and the value with its quotes or brackets. `isEscaped`: the key holds a
 * backslash. A false answer ends the scan.
 */
export type VisitMember = (
  keyStart: number,
  keyEnd: number,
  valueStart: number,
  valueEnd: number,
  isEscaped: boolean,
) => boolean | void;

export type VisitItem = (valueStart: number, valueEnd: number) => boolean | void;

/**
 * Visits the members of the object at `start`, not those of objects in it, in their order.
 * @param start where the object begins, or white space before it
 * @returns the index after the object, or after the value at which the visitor ended the scan. -1: no object, or a
 *   fault in it; the members before the fault have been visited.
 */
export function scanMembers(bytes: Buffer, start: number, end: number, visit: VisitMember): number {
  let at = skipSpace(bytes, start, end);
  if (byteAt(bytes, at, end) !== OPEN_OBJECT) return -1;
  at = skipSpace(bytes, at + 1, end);
  if (byteAt(bytes, at, end) === CLOSE_OBJECT) return at + 1;
  for (;;) {
    if (byteAt(bytes, at, end) !== QUOTE) return -1;
    const keyStart = at + 1;
    let keyEnd = skipPlainKey(bytes, keyStart, end);
    const isEscaped = byteAt(bytes, keyEnd, end) === BACKSLASH;
    if (isEscaped) keyEnd = skipEscapedKey(bytes, keyEnd, end);
    if (byteAt(bytes, keyEnd, end) !== QUOTE) return -1;
    at = skipSpace(bytes, keyEnd + 1, end);
    if (byteAt(bytes, at, end) !== COLON) return -1;
    const valueStart = skipSpace(bytes, at + 1, end);
    const valueEnd = skipValue(bytes, valueStart, end);
    if (valueEnd < 0 || visit(keyStart, keyEnd, valueStart, valueEnd, isEscaped) === false) return valueEnd;
    at = skipSpace(bytes, valueEnd, end);
    const mark = byteAt(bytes, at, end);
    if (mark === CLOSE_OBJECT) return at + 1;
    if (mark !== COMMA) return -1;
    at = skipSpace(bytes, at + 1, end);
  }
}

/** Visits the elements of the array at `start`, as `scanMembers` does the members of an object. */
export function scanItems(bytes: Buffer, start: number, end: number, visit: VisitItem): number {
  let at = skipSpace(bytes, start, end);
  if (byteAt(bytes, at, end) !== OPEN_ARRAY) return -1;
  at = skipSpace(bytes, at + 1, end);
  if (byteAt(bytes, at, end) === CLOSE_ARRAY) return at + 1;
  for (;;) {
    const valueEnd = skipValue(bytes, at, end);
    if (valueEnd < 0 || visit(at, valueEnd) === false) return valueEnd;
    at = skipSpace(bytes, valueEnd, end);
    const mark = byteAt(bytes, at, end);
    if (mark === CLOSE_ARRAY) return at + 1;
    if (mark !== COMMA) return -1;
    at = skipSpace(bytes, at + 1, end);
  }
}

/** Finds several members of an object in one pass. Made once for its names, which are ASCII; other keys cost little. */
export class MemberFinder {
  readonly #names: readonly string[];
  /** By length and first letter: one more than the index of a name, 0 for none. `#next` leads on to others like it. */
  readonly #first = new Uint32Array(256);
  readonly #next: Uint32Array;

  constructor(names: readonly string[]) {
    this.#names = names;
    this.#next = new Uint32Array(names.length + 1);
    for (const [i, name] of names.entries()) {
      const slot = slotOf(name.length, name === '' ? QUOTE : name.charCodeAt(0));
      this.#next[i + 1] = this.#first[slot]!;
      this.#first[slot] = i + 1;
    }
  }

  /**
   * @param spans gets where the value of name `i` begins at `2 * i` and ends at `2 * i + 1`, -1 and -1 where it is
   *   absent. Of several members with one name the last counts, as it does for JSON.parse and for Python's json.
   * @returns what `scanMembers` does; at -1 the spans hold what came before the fault.
   */
  find(bytes: Buffer, start: number, end: number, spans: Int32Array): number {
    const names = this.#names;
    spans.fill(-1, 0, 2 * names.length);
    return scanMembers(bytes, start, end, (keyStart, keyEnd, valueStart, valueEnd, isEscaped) => {
      let which = isEscaped ? names.length : this.#first[slotOf(keyEnd - keyStart, bytes[keyStart]!)]!;
      while (which > 0) {
        if (keyIs(bytes, keyStart, keyEnd, names[which - 1]!)) {
          spans[2 * which - 2] = valueStart;
          spans[2 * which - 1] = valueEnd;
        }
        which = isEscaped ? which - 1 : this.#next[which]!;
      }
    });
  }
}

function slotOf(length: number, firstByte: number): number {
  return (length * 31 + firstByte) & 255;
}

/** True when the content of the JSON string `bytes[keyStart, keyEnd)`, without quotes, is `name`, which is ASCII. */
export function keyIs(bytes: Buffer, keyStart: number, keyEnd: number, name: string): boolean {
  if (keyEnd - keyStart < name.length) return false;
  let at = keyStart;
  for (let i = 0; i < name.length; i++) {
    if (at >= keyEnd) return false;
    let unit = bytes[at]!;
    if (unit === BACKSLASH) {
      unit = escapedUnit(bytes, at, keyEnd);
      at += bytes[at + 1] === LETTER_U ? 6 : 2;
    } else at++;
    if (unit !== name.charCodeAt(i)) return false;
  }
  return at === keyEnd;
}

/** Decodes a string value; null: it is not a string. For short ones: the caller checks the length first. */
export function readString(bytes: Buffer, valueStart: number, valueEnd: number): string | null {
  const last = valueEnd - 1;
  if (last <= valueStart || bytes[valueStart] !== QUOTE || bytes[last] !== QUOTE) return null;
  for (let at = valueStart + 1; at < last; at++) {
    const byte = bytes[at]!;
    if (byte === BACKSLASH) return parseString(bytes.toString('utf8', valueStart, valueEnd));
    if (byte === QUOTE || byte < SP) return null;
  }
  return bytes.toString('utf8', valueStart + 1, last);
}

const scalar = /^(?:true|false|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/;

/** A string value decoded; a number, `true` or `false` as it is written, whatever its precision; null for the rest. */
export function readScalarText(bytes: Buffer, valueStart: number, valueEnd: number): string | null {
  if (valueStart >= valueEnd) return null;
  const first = bytes[valueStart]!;
  if (first === QUOTE) return readString(bytes, valueStart, valueEnd);
  if (IS_SCALAR[first] === 0) return null;
  const text = bytes.toString('latin1', valueStart, valueEnd);
  return scalar.test(text) ? text : null;
}

function parseString(text: string): string | null {
  try {
    return JSON.parse(text) as string;
  } catch {
    return null;
  }
}

/** The byte at `at`, -1 at the end. */
function byteAt(bytes: Buffer, at: number, end: number): number {
  return at < end ? bytes[at]! : -1;
}

function skipSpace(bytes: Buffer, start: number, end: number): number {
  let at = start;
  while (at < end) {
    const byte = bytes[at]!;
    if (byte > SP || (byte !== SP && byte !== LF && byte !== CR && byte !== HTAB)) break;
    at++;
  }
  return at;
}

/** @returns where the key ends, has its first escape or is at fault: the caller looks which. */
function skipPlainKey(bytes: Buffer, start: number, end: number): number {
  let at = start;
  while (at < end) {
    const byte = bytes[at]!;
    if (byte === QUOTE || byte === BACKSLASH || byte < SP) break;
    at++;
  }
  return at;
}

/** @returns where the key ends or is at fault. */
function skipEscapedKey(bytes: Buffer, start: number, end: number): number {
  let at = start;
  for (;;) {
    at = skipPlainKey(bytes, at, end);
    if (byteAt(bytes, at, end) !== BACKSLASH || escapedUnit(bytes, at, end) < 0) return at;
    at += bytes[at + 1] === LETTER_U ? 6 : 2;
  }
}

/** The UTF-16 unit of the escape at `at`; -1: it is not valid. */
function escapedUnit(bytes: Buffer, at: number, end: number): number {
  if (at + 2 > end) return -1;
  if (bytes[at + 1] !== LETTER_U) return ESCAPED[bytes[at + 1]!]!;
  if (at + 6 > end) return -1;
  const a = HEX_VALUE[bytes[at + 2]!]!;
  const b = HEX_VALUE[bytes[at + 3]!]!;
  const c = HEX_VALUE[bytes[at + 4]!]!;
  const d = HEX_VALUE[bytes[at + 5]!]!;
  return (a | b | c | d) > 15 ? -1 : (a << 12) | (b << 8) | (c << 4) | d;
}

/** @returns the index after the value, -1 if there is none or it has no end. */
export function skipValue(bytes: Buffer, start: number, end: number): number {
  const first = byteAt(bytes, start, end);
  if (first === QUOTE) return skipString(bytes, start + 1, end);
  if ((first | CURLY) === OPEN_OBJECT) return skipNested(bytes, start, end);
  let at = start;
  while (at < end && IS_SCALAR[bytes[at]!] === 1) at++;
  return at > start ? at : -1;
}

/** @param start after the opening quote */
function skipString(bytes: Buffer, start: number, end: number): number {
  let at = start;
  for (;;) {
    const near = Math.min(at + NEAR, end);
    while (at < near) {
      const byte = bytes[at]!;
      if (byte === QUOTE) return at + 1;
      at += byte === BACKSLASH ? 2 : 1;
    }
    if (at >= end) return -1;
    const quote = bytes.indexOf(QUOTE, at);
    if (quote < 0 || quote >= end) return -1;
    // An odd number of backslashes escapes the quote. None before `at` belongs to them: they were stepped over.
    let run = quote;
    while (run > at && bytes[run - 1] === BACKSLASH) run--;
    if (((quote - run) & 1) === 0) return quote + 1;
    at = quote + 1;
  }
}

/** Skips an array or object: counts brackets, of whatever kind, outside strings. */
function skipNested(bytes: Buffer, start: number, end: number): number {
  let depth = 0;
  let at = start;
  /** The first `]` from `at` on, as far as it was looked for. */
  let close = -1;
  while (at < end) {
    const byte = bytes[at++]!;
    if (byte === QUOTE) {
      at = skipString(bytes, at, end);
      if (at < 0) return -1;
    } else if ((byte | CURLY) === CLOSE_OBJECT) {
      if (--depth === 0) return at;
    } else if ((byte | CURLY) === OPEN_OBJECT) {
      depth++;
      if (byte === OPEN_OBJECT || !isScalarRun(bytes, at, end)) continue;
      // Token ids: an array that goes on without strings and arrays ends at the next `]`, and the objects in it, if
      // any, are empty. No part is searched twice: `close` is kept, and what ends a search is stepped over next.
      if (close < at) close = at + bytes.subarray(at, end).indexOf(CLOSE_ARRAY);
      if (close < at) return -1;
      const inside = bytes.subarray(at, close);
      if (!inside.includes(OPEN_ARRAY) && !inside.includes(QUOTE)) at = close;
    }
  }
  return -1;
}

/** True when an array is at its start worth being searched natively: it begins with a long run of scalars. */
function isScalarRun(bytes: Buffer, start: number, end: number): boolean {
  const far = start + LONG_RUN;
  if (far > end) return false;
  let at = start;
  while (at < far) {
    const byte = bytes[at]!;
    if (byte === QUOTE || (byte | CURLY) === OPEN_OBJECT || (byte | CURLY) === CLOSE_OBJECT) return false;
    at++;
  }
  return true;
}
