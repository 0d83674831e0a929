import { HTAB, LF, CR, SP } from './bytes.ts';
import { HIGH_DIGITS, decimal } from './decimal.ts';
import { type KeyTable, wordAt } from './json-keys.ts';
import { plainEnd, plainIds, plainPairs } from './json-runs.ts';
import { skipValue } from './json-scan.ts';

const QUOTE = 0x22;
const PLUS = 0x2b;
const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const LETTER_E = 0x65;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
/** In lower case and upper case. */
const CASE = 0x20;

const NULL = Buffer.from('null');

const NO_IDS = new Int32Array(0);

/** Where ids are gathered until their number is known. */
let scratch = new Int32Array(4096);

/**
 * Reads a JSON document once from its beginning to its end: each call takes what it is named after, and nothing is built that nobody
 * asked for. What is read is what JSON.parse would read; what the cursor doesn't understand, or what isn't there, fails it, and
 * whoever uses it goes back to JSON.parse then. After a failure nothing it says counts.
 */
export class JsonCursor {
  at: number;
  hasFailed = false;
  readonly #bytes: Buffer;
  readonly #end: number;

  constructor(bytes: Buffer, start: number, end: number) {
    this.#bytes = bytes;
    this.at = start;
    this.#end = end;
  }

  /** Nothing but white space is left. */
  get isAtEnd(): boolean {
    this.#space();
    return this.at === this.#end;
  }

  /** Takes an object. `visit` takes the value of each key that is in the table; others are passed over. A key may be there once. */
  members(table: KeyTable, visit: (which: number) => void): void {
    if (!this.#takes(OPEN_OBJECT)) return this.#fail();
    if (this.#takes(CLOSE_OBJECT)) return;
    let seen = 0;
    do {
      const which = this.#key(table);
      if (this.hasFailed) return;
      if (which < 0) this.skip();
      else if ((seen & (1 << which)) !== 0) return this.#fail();
      else {
        seen |= 1 << which;
        visit(which);
      }
    } while (!this.hasFailed && this.#takes(COMMA));
    if (!this.#takes(CLOSE_OBJECT)) this.#fail();
  }

  /** Takes an array; `visit` takes its items. */
  items(visit: () => void): void {
    if (!this.#takes(OPEN_ARRAY)) return this.#fail();
    if (this.#takes(CLOSE_ARRAY)) return;
    do visit();
    while (!this.hasFailed && this.#takes(COMMA));
    if (!this.#takes(CLOSE_ARRAY)) this.#fail();
  }

  /** Goes into an array of which only the first items are wanted: `[`, a comma between two of them, and all the rest of it. */
  opens(): void {
    if (!this.#takes(OPEN_ARRAY)) this.#fail();
  }

  comma(): void {
    if (!this.#takes(COMMA)) this.#fail();
  }

  rest(): void {
    while (!this.hasFailed && this.#takes(COMMA)) this.skip();
    if (!this.#takes(CLOSE_ARRAY)) this.#fail();
  }

  /** Takes `null`, if that is what comes. */
  isNull(): boolean {
    this.#space();
    const { at } = this;
    if (at + NULL.length > this.#end) return false;
    for (let i = 0; i < NULL.length; i++) if (this.#bytes[at + i] !== NULL[i]) return false;
    this.at += NULL.length;
    return true;
  }

  /** What comes is a string. */
  get isString(): boolean {
    this.#space();
    return this.#bytes[this.at] === QUOTE;
  }

  /** Takes any value, without a look into it. */
  skip(): void {
    this.#space();
    const after = skipValue(this.#bytes, this.at, this.#end);
    if (after < 0) this.#fail();
    else this.at = after;
  }

  /** Takes a string without escapes, as text. */
  word(): string {
    if (!this.#takes(QUOTE)) return this.#failed('');
    const start = this.at;
    const { plain } = this.#string();
    return plain ? wordAt(this.#bytes, start, this.at - 1) : this.#failed('');
  }

  /** Takes a string. @returns it as UTF-8, in memory of its own */
  text(): Buffer {
    if (!this.#takes(QUOTE)) return this.#failed(Buffer.alloc(0));
    const start = this.at;
    const { plain, whole } = this.#string();
    if (this.hasFailed) return Buffer.alloc(0);
    if (plain) return Buffer.from(this.#bytes.subarray(start, this.at - 1));
    const text = this.#bytes.toString('utf8', start - 1, this.at);
    try {
      return Buffer.from(whole ? text.slice(1, -1) : (JSON.parse(text) as string));
    } catch {
      return this.#failed(Buffer.alloc(0));
    }
  }

  /** Takes a whole number from 0 on that fits 31 bits. */
  id(): number {
    this.#space();
    const { at: start } = this;
    const bytes = this.#bytes;
    let value = 0;
    let digit = 0;
    let { at } = this;
    while (at < this.#end && (digit = bytes[at]! ^ ZERO) <= 9) {
      value = value * 10 + digit;
      at++;
    }
    this.at = at;
    const isNumber = at > start && value < 2 ** 31 && (bytes[start] !== ZERO || at === start + 1);
    return isNumber ? value : this.#failed(0);
  }

  /** Takes an array of such numbers. */
  ids(): Int32Array {
    return this.idsInPlace().slice();
  }

  /** The same in memory that the next cursor uses again. */
  idsInPlace(): Int32Array {
    if (!this.#takes(OPEN_ARRAY)) return this.#failed(NO_IDS);
    if (this.#takes(CLOSE_ARRAY)) return NO_IDS;
    let count = 0;
    do {
      if (scratch.length < count + (this.#end - this.at) / 2) scratch = enlarged(scratch, count, this.#end - this.at);
      const taken = plainIds(this.#bytes, this.at, this.#end, scratch, count);
      this.at += taken.bytes;
      count += taken.count;
      // What has seven digits, blanks or a fault is looked at more closely.
      scratch[count++] = this.id();
    } while (!this.hasFailed && this.#takes(COMMA));
    if (!this.#takes(CLOSE_ARRAY)) this.#fail();
    return scratch.subarray(0, count);
  }

  /** Takes an array of arrays that begin with a number, or null, and an id: just these ids. @param numbers gets the numbers, 0 for null */
  pairs(ids: Int32Array, numbers: Float64Array): void {
    if (!this.#takes(OPEN_ARRAY)) return this.#fail();
    let count = 0;
    if (!this.#takes(CLOSE_ARRAY)) {
      do {
        const taken = plainPairs(this.#bytes, this.at, this.#end, ids, numbers, count);
        this.at += taken.bytes;
        count += taken.count;
        if (count === ids.length) return this.#fail();
        this.opens();
        numbers[count] = this.isNull() ? NaN : this.number();
        this.comma();
        if (this.id() !== ids[count++]) this.#fail();
        this.rest();
      } while (!this.hasFailed && this.#takes(COMMA));
      if (!this.#takes(CLOSE_ARRAY)) this.#fail();
    }
    if (count !== ids.length) this.#fail();
  }

  /** Takes any number. */
  number(): number {
    this.#space();
    const bytes = this.#bytes;
    const end = this.#end;
    const { at: start } = this;
    let at = start;
    const isNegative = bytes[at] === MINUS;
    if (isNegative) at++;
    // Digits: the first ones, then those beyond what a double surely holds.
    let high = 0;
    let highDigits = 0;
    let low = 0;
    let lowDigits = 0;
    let power = 0;
    let digit = 0;
    for (let part = 0; part < 2; part++) {
      const first = at;
      for (; at < end && (digit = bytes[at]! ^ ZERO) <= 9; at++) {
        if (highDigits < HIGH_DIGITS) {
          high = high * 10 + digit;
          if (high > 0) highDigits++;
        } else {
          low = low * 10 + digit;
          lowDigits++;
        }
      }
      // At least one, and a zero in front stands alone.
      if (at === first || (part === 0 && at > first + 1 && bytes[first] === ZERO)) return this.#failed(0);
      if (part === 1) power = at - first;
      else if (at < end && bytes[at] === POINT) at++;
      else break;
    }
    if (at < end && (bytes[at]! | CASE) === LETTER_E) {
      const sign = bytes[++at];
      if (sign === MINUS || sign === PLUS) at++;
      const digits = at;
      let exponent = 0;
      for (; at < end && (digit = bytes[at]! ^ ZERO) <= 9; at++) exponent = exponent * 10 + digit;
      if (at <= digits) return this.#failed(0);
      power += sign === MINUS ? exponent : -exponent;
    }
    this.at = at;
    const value = decimal(high, low, lowDigits, power);
    if (Number.isNaN(value)) return Number(bytes.toString('latin1', start, at));
    return isNegative ? -value : value;
  }

  #key(table: KeyTable): number {
    if (!this.#takes(QUOTE)) return this.#failed(-1);
    const which = table.find(this.#bytes, this.at, this.#end);
    if (which >= 0) this.at += table.lengthOf(which);
    else {
      let at = plainEnd(this.#bytes, this.at, this.#end);
      while (at < this.#end && this.#bytes[at]! >= 0x80) at = plainEnd(this.#bytes, at + 1, this.#end);
      // An escape may spell a name in another way: nobody writes keys like that.
      if (at >= this.#end || this.#bytes[at] !== QUOTE) return this.#failed(-1);
      this.at = at + 1;
    }
    return this.#takes(COLON) ? which : this.#failed(-1);
  }

  /** From behind the opening quote to behind the closing one. `plain`: all ASCII, no escapes. `whole`: no escapes. */
  #string(): { plain: boolean; whole: boolean } {
    const bytes = this.#bytes;
    let { at } = this;
    let isAscii = true;
    let whole = true;
    while ((at = plainEnd(this.#bytes, at, this.#end)) < this.#end) {
      const byte = bytes[at]!;
      if (byte === QUOTE) break;
      if (byte < SP) this.#fail();
      if (byte === BACKSLASH) {
        whole = false;
        at++;
      }
      // An escaped letter is one, too.
      if (at < this.#end && bytes[at]! >= 0x80) isAscii = false;
      at++;
      while (at < this.#end && bytes[at]! >= 0x80) at++;
    }
    if (at >= this.#end) this.#fail();
    this.at = at + 1;
    return { plain: whole && isAscii, whole };
  }

  #takes(mark: number): boolean {
    if (this.#bytes[this.at] !== mark) this.#space();
    if (this.at >= this.#end || this.#bytes[this.at] !== mark) return false;
    this.at++;
    return true;
  }

  #space(): void {
    const bytes = this.#bytes;
    let { at } = this;
    while (at < this.#end) {
      const byte = bytes[at]!;
      if (byte > SP || (byte !== SP && byte !== LF && byte !== CR && byte !== HTAB)) break;
      at++;
    }
    this.at = at;
  }

  #fail(): void {
    this.hasFailed = true;
  }

  #failed<T>(answer: T): T {
    this.hasFailed = true;
    return answer;
  }
}

function enlarged(list: Int32Array, count: number, more: number): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(count + more);
  larger.set(list.subarray(0, count));
  return larger;
}
