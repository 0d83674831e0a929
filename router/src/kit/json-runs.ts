import { SP } from './bytes.ts';
import { decimal } from './decimal.ts';
import { TENS, digitsOf, valueOf } from './digits.ts';

// V8 looks at each use whether what is imported is there yet; these it knows.
const countOf = digitsOf;
const numberOf = valueOf;
const tens = TENS;
const quotientOf = decimal;

const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;

interface Taken {
  readonly bytes: number;
  readonly count: number;
}

/**
 * Numbers with a comma right behind them, one after the other: a loop of its own, as V8 makes better code of one that knows of nothing
 * else.
 */
export function plainIds(bytes: DataView, start: number, end: number, into: Int32Array, before: number): Taken {
  // With `| 0` V8 keeps them in registers, as they are.
  let count = before | 0;
  let from = start | 0;
  // So much is read at a time.
  const last = (end - 12) | 0;
  while (from <= last) {
    const word = bytes.getInt32(from, true);
    let digits = countOf(word) | 0;
    // A zero in front stands alone.
    if (digits === 0 || (digits > 1 && (word & 0xff) === ZERO)) break;
    let value = numberOf(word, digits) | 0;
    let behind = (word >>> (8 * digits)) & 0xff;
    if (digits === 4) {
      const next = bytes.getInt32((from + 4) | 0, true);
      const more = countOf(next) | 0;
      if (more === 4) break;
      if (more > 0) value = (value * tens[more]! + numberOf(next, more)) | 0;
      behind = (next >>> (8 * more)) & 0xff;
      digits = (4 + more) | 0;
    }
    if (behind !== COMMA) break;
    into[count] = value;
    count = (count + 1) | 0;
    from = (from + digits + 1) | 0;
  }
  return { bytes: from - start, count: count - before };
}

/** `null` as a word. */
const NULL_WORD = Buffer.from('null').readInt32LE();
/** Digits behind the point that are read as one number, with up to three before it; those behind them are another. */
const HIGH_FRACTION = 12;

/**
 * `[-1.25,7,null],` one after the other, in the form in which engines write them: a number with a fraction, the id that is expected, and
 * `null` or a string without escapes. Whatever else there is, is looked at more closely.
 */
export function plainPairs(
  bytes: DataView,
  start: number,
  end: number,
  ids: Int32Array,
  numbers: Float64Array,
  before: number,
): Taken {
  let count = before | 0;
  let from = start | 0;
  // What is read at a time, but for the string, is shorter.
  const last = (end - 64) | 0;
  while (from < last && count < ids.length) {
    let word = bytes.getInt32(from, true);
    const isNegative = ((word >>> 8) & 0xff) === MINUS;
    let at = (from + (isNegative ? 2 : 1)) | 0;
    if ((word & 0xff) !== OPEN_ARRAY) break;
    word = bytes.getInt32(at, true);
    let digits = countOf(word) | 0;
    if (digits === 0 || (digits > 1 && (word & 0xff) === ZERO)) break;
    let high = numberOf(word, digits);
    if (digits === 4 || ((word >>> (8 * digits)) & 0xff) !== POINT) break;
    const fraction = (at + digits + 1) | 0;
    const limit = (fraction + HIGH_FRACTION) | 0;
    at = fraction;
    do {
      word = bytes.getInt32(at, true);
      digits = countOf(word) | 0;
      if (digits === 0) break;
      high = high * tens[digits]! + numberOf(word, digits);
      at = (at + digits) | 0;
    } while (digits === 4 && at < limit);
    let low = 0;
    let lowDigits = 0;
    while (digits === 4 && lowDigits < 8) {
      word = bytes.getInt32(at, true);
      digits = countOf(word) | 0;
      if (digits === 0) break;
      low = (low * tens[digits]! + numberOf(word, digits)) | 0;
      lowDigits = (lowDigits + digits) | 0;
      at = (at + digits) | 0;
    }
    if (at === fraction || bytes.getUint8(at) !== COMMA) break;
    // NaN where there are too many of them.
    const number = quotientOf(high, low, lowDigits, (at - fraction) | 0);
    if (Number.isNaN(number)) break;
    at = (at + 1) | 0;
    word = bytes.getInt32(at, true);
    digits = countOf(word) | 0;
    if (digits === 0 || (digits > 1 && (word & 0xff) === ZERO)) break;
    let id = numberOf(word, digits) | 0;
    at = (at + digits) | 0;
    if (digits === 4) {
      word = bytes.getInt32(at, true);
      digits = countOf(word) | 0;
      if (digits === 4) break;
      if (digits > 0) id = (id * tens[digits]! + numberOf(word, digits)) | 0;
      at = (at + digits) | 0;
    }
    if (id !== ids[count] || bytes.getUint8(at) !== COMMA) break;
    at = (at + 1) | 0;
    if (bytes.getInt32(at, true) === NULL_WORD) at = (at + 4) | 0;
    else {
      at = endOfPlainString(bytes, at, last);
      if (at < 0) break;
    }
    if (bytes.getUint8(at) !== CLOSE_ARRAY || bytes.getUint8((at + 1) | 0) !== COMMA) break;
    numbers[count] = isNegative ? -number : number;
    count = (count + 1) | 0;
    from = (at + 2) | 0;
  }
  return { bytes: from - start, count: count - before };
}

/** @returns the index behind a string without escapes, -1: there is none */
function endOfPlainString(bytes: DataView, start: number, last: number): number {
  if (bytes.getUint8(start) !== QUOTE) return -1;
  for (let at = start + 1; at < last; at++) {
    const byte = bytes.getUint8(at);
    if (byte === QUOTE) return at + 1;
    if (byte === BACKSLASH || byte < SP) return -1;
  }
  return -1;
}

const QUOTES = 0x22_22_22_22;
const BACKSLASHES = 0x5c_5c_5c_5c;
const SPACES = 0x20_20_20_20;
const ONES = 0x01_01_01_01;
const HIGHEST_BITS = 0x80_80_80_80 | 0;

/** @returns the index of the first byte that is a quote, a backslash, no visible ASCII, or at the end */
export function plainEnd(bytes: DataView, start: number, end: number): number {
  let at = start | 0;
  for (const last = (end - 4) | 0; at <= last; at = (at + 4) | 0) {
    const word = bytes.getInt32(at, true);
    // Taking one from each byte sets the highest bit of those that were zero.
    const quotes = word ^ QUOTES;
    const backslashes = word ^ BACKSLASHES;
    const stops =
      (((quotes - ONES) | 0) & ~quotes) |
      (((backslashes - ONES) | 0) & ~backslashes) |
      (((word - SPACES) | 0) & ~word) |
      word;
    if ((stops & HIGHEST_BITS) !== 0) break;
  }
  for (; at < end; at = (at + 1) | 0) {
    const byte = bytes.getUint8(at);
    if (byte === QUOTE || byte === BACKSLASH || byte < SP || byte >= 0x80) break;
  }
  return at;
}
