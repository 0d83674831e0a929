import { SP } from './bytes.ts';
import { MIN_HIGH_DIGITS, decimal } from './decimal.ts';

// V8 looks at each use whether what is imported is there yet; this it knows.
const numberFrom = decimal;

const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;

/** As long as it is less, a number has room for one more digit in 31 bits. */
const NEARLY_FULL = 10 ** (MIN_HIGH_DIGITS - 1);

interface Taken {
  readonly bytes: number;
  readonly count: number;
}

/**
 * Numbers of six digits at most with a comma right behind them, one after the other. A loop of its own that has none in it, as V8 makes
 * better code of it then: digit by digit this is cheaper than four at a time.
 */
export function plainIds(bytes: Uint8Array, start: number, end: number, into: Int32Array, before: number): Taken {
  // With `| 0` V8 keeps them in registers, as they are.
  let count = before | 0;
  let from = start | 0;
  // So much is read of one.
  const last = (end - 7) | 0;
  while (from <= last) {
    let at = from;
    let digit = (bytes[at]! - ZERO) | 0;
    let value = digit;
    // A zero in front stands alone.
    if (value >>> 0 > 9 || (value === 0 && bytes[at + 1] !== COMMA)) break;
    digits: {
      if ((digit = (bytes[(at = (at + 1) | 0)]! - ZERO) | 0) >>> 0 > 9) break digits;
      value = (Math.imul(value, 10) + digit) | 0;
      if ((digit = (bytes[(at = (at + 1) | 0)]! - ZERO) | 0) >>> 0 > 9) break digits;
      value = (Math.imul(value, 10) + digit) | 0;
      if ((digit = (bytes[(at = (at + 1) | 0)]! - ZERO) | 0) >>> 0 > 9) break digits;
      value = (Math.imul(value, 10) + digit) | 0;
      if ((digit = (bytes[(at = (at + 1) | 0)]! - ZERO) | 0) >>> 0 > 9) break digits;
      value = (Math.imul(value, 10) + digit) | 0;
      if ((digit = (bytes[(at = (at + 1) | 0)]! - ZERO) | 0) >>> 0 > 9) break digits;
      value = (Math.imul(value, 10) + digit) | 0;
      digit = (bytes[(at = (at + 1) | 0)]! - ZERO) | 0;
    }
    if (digit !== COMMA - ZERO) break;
    into[count] = value;
    count = (count + 1) | 0;
    from = (at + 1) | 0;
  }
  return { bytes: from - start, count: count - before };
}

/** `null`, byte by byte. */
const NULL = [...Buffer.from('null')] as [number, number, number, number];

/** What is known of a number beside its first digits: those after them, how many those are, all behind the point, where it begins. */
const LOW = 0;
const LOW_DIGITS = 1;
const POWER = 2;
const BEGIN = 3;
const PARTS = 4;
/** Of numbers whose digits are read and that are not put together yet. */
let parts = new Int32Array(PARTS * 256);

/**
 * `[-1.25,7,null],` one after the other, in the form in which engines write them: a number with a fraction, the id that is expected, and
 * `null` or a string without escapes. Whatever else there is, is looked at more closely.
 */
export function plainPairs(
  bytes: Uint8Array,
  start: number,
  end: number,
  ids: Int32Array,
  numbers: Float64Array,
  before: number,
): Taken {
  if (parts.length < PARTS * ids.length) parts = new Int32Array(PARTS * ids.length);
  let count = before | 0;
  let from = start | 0;
  // What is read without a look at the end, but for the string, is shorter.
  const last = (end - 64) | 0;
  while (from < last && count < ids.length) {
    if (bytes[from] !== OPEN_ARRAY) break;
    const isNegative = bytes[from + 1] === MINUS;
    let at = (from + (isNegative ? 2 : 1)) | 0;
    let digit = (bytes[at]! - ZERO) | 0;
    let high = digit;
    if (high >>> 0 > 9) break;
    at = (at + 1) | 0;
    while (high > 0 && high < NEARLY_FULL && (digit = (bytes[at]! - ZERO) | 0) >>> 0 <= 9) {
      high = (Math.imul(high, 10) + digit) | 0;
      at = (at + 1) | 0;
    }
    if (bytes[at] !== POINT) break;
    const fraction = (at + 1) | 0;
    at = fraction;
    while (high < NEARLY_FULL && (digit = (bytes[at]! - ZERO) | 0) >>> 0 <= 9 && at < last) {
      high = (Math.imul(high, 10) + digit) | 0;
      at = (at + 1) | 0;
    }
    const behindHigh = at;
    let low = 0;
    while (low < NEARLY_FULL && (digit = (bytes[at]! - ZERO) | 0) >>> 0 <= 9 && at < last) {
      low = (Math.imul(low, 10) + digit) | 0;
      at = (at + 1) | 0;
    }
    if (at === fraction || bytes[at] !== COMMA) break;
    const part = (PARTS * count) | 0;
    parts[part + LOW] = low;
    parts[part + LOW_DIGITS] = (at - behindHigh) | 0;
    parts[part + POWER] = (at - fraction) | 0;
    parts[part + BEGIN] = (from + 1) | 0;
    numbers[count] = isNegative ? -high : high;
    at = (at + 1) | 0;
    digit = (bytes[at]! - ZERO) | 0;
    let id = digit;
    if (id >>> 0 > 9) break;
    at = (at + 1) | 0;
    while (id > 0 && id < NEARLY_FULL && (digit = (bytes[at]! - ZERO) | 0) >>> 0 <= 9) {
      id = (Math.imul(id, 10) + digit) | 0;
      at = (at + 1) | 0;
    }
    if (id !== ids[count] || bytes[at] !== COMMA) break;
    at = (at + 1) | 0;
    if (isNull(bytes, at)) at = (at + 4) | 0;
    else {
      at = endOfPlainString(bytes, at, last);
      if (at < 0) break;
    }
    if (bytes[at] !== CLOSE_ARRAY || bytes[at + 1] !== COMMA) break;
    count = (count + 1) | 0;
    from = (at + 2) | 0;
  }
  putTogether(bytes, numbers, before, count);
  return { bytes: from - start, count: count - before };
}

/** A loop of its own, so that V8 has its numbers in registers. */
function putTogether(bytes: Uint8Array, numbers: Float64Array, before: number, count: number): void {
  for (let i = before; i < count; i++) {
    const part = PARTS * i;
    const high = numbers[i]!;
    const number = numberFrom(Math.abs(high), parts[part + LOW]!, parts[part + LOW_DIGITS]!, parts[part + POWER]!);
    if (Number.isNaN(number)) numbers[i] = Number(textUpToComma(bytes, parts[part + BEGIN]!));
    else numbers[i] = high < 0 || Object.is(high, -0) ? -number : number;
  }
}

function textUpToComma(bytes: Uint8Array, start: number): string {
  const end = bytes.indexOf(COMMA, start);
  return String.fromCharCode(...bytes.subarray(start, end));
}

const isNull = (bytes: Uint8Array, at: number): boolean =>
  bytes[at] === NULL[0] && bytes[at + 1] === NULL[1] && bytes[at + 2] === NULL[2] && bytes[at + 3] === NULL[3];

/** @returns the index behind a string without escapes, -1: there is none */
function endOfPlainString(bytes: Uint8Array, start: number, last: number): number {
  if (bytes[start] !== QUOTE) return -1;
  for (let at = start + 1; at < last; at++) {
    const byte = bytes[at]!;
    if (byte === QUOTE) return at + 1;
    if (byte === BACKSLASH || byte < SP) return -1;
  }
  return -1;
}

/** Letters of a string that stand for themselves, in one byte. */
const IS_PLAIN = Uint8Array.from({ length: 256 }, (_, byte) =>
  byte >= SP && byte < 0x80 && byte !== QUOTE && byte !== BACKSLASH ? 1 : 0,
);

/** @returns the index of the first byte that is a quote, a backslash, no visible ASCII, or at the end */
export function plainEnd(bytes: Uint8Array, start: number, end: number): number {
  let at = start | 0;
  while (at < end && IS_PLAIN[bytes[at]!] === 1) at = (at + 1) | 0;
  return at;
}
