import type { MemberPlace } from './json-edit.ts';
import { type VisitMember, keyIs, readScalarText, readString, scanItems, scanMembers, skipValue } from './json-scan.ts';
import { truthOf } from './truth.ts';

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const OPEN_OBJECT = 0x7b;
const SPACE = 0x20;
const ZERO = 0x30;
/** The first byte of `null`. */
const N = 0x6e;
/** Integers with so many digits are exact. */
const MOST_DIGITS = 15;

/** Bounds the index. An object with more members has none: each search scans it. */
const MAX_INDEXED = 4_096;
/** Numbers of a member in the index: where its key, without quotes, and its value begin and end, and 1 if the key has an escape. */
const WIDTH = 5;

/**
 * A JSON value in its bytes. Nothing is decoded until it is asked for, so numbers keep all their digits, and a value of megabytes costs a scan.
 * A member that is absent, and one that is `null`, are null; of several members with one name the last counts, as for JSON.parse.
 */
export class Json {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
  /** undefined: the members are not scanned yet; null: there are too many. */
  #index: readonly number[] | null | undefined;

  constructor(bytes: Buffer, start: number, end: number) {
    this.bytes = bytes;
    this.start = start;
    this.end = end;
  }

  /** The object at `start`, or after white space there; null: there is no whole object. */
  static object(bytes: Buffer, start = 0, end = bytes.length): Json | null {
    const index: number[] = [];
    let members = 0;
    const after = scanMembers(bytes, start, end, (...member) => {
      if (++members <= MAX_INDEXED) addTo(index, ...member);
    });
    if (after < 0) return null;
    const object = new Json(bytes, start, after);
    object.#index = members > MAX_INDEXED ? null : index;
    return object;
  }

  /** The list at `start`, or after white space there; null: there is no whole list. */
  static list(bytes: Buffer, start = 0): Json | null {
    let at = start;
    while (bytes[at]! <= SPACE) at++;
    const end = bytes[at] === OPEN_ARRAY ? skipValue(bytes, at, bytes.length) : -1;
    return end < 0 ? null : new Json(bytes, at, end);
  }

  get isObject(): boolean {
    return this.bytes[this.start] === OPEN_OBJECT;
  }

  get isList(): boolean {
    return this.bytes[this.start] === OPEN_ARRAY;
  }

  get isText(): boolean {
    return this.bytes[this.start] === QUOTE;
  }

  get isNull(): boolean {
    return this.bytes[this.start] === N;
  }

  /** The object has no members. */
  get isEmpty(): boolean {
    return this.#members()?.length === 0;
  }

  /** Where a member is, even if its value is `null`; null: it is absent. */
  place(name: string): MemberPlace | null {
    const index = this.#membersFor(name);
    const i = this.#last(name, index);
    return i < 0 ? null : { from: index[i]! - 1, valueStart: index[i + 2]!, to: index[i + 3]! };
  }

  /** The value of a member. */
  get(name: string): Json | null {
    const index = this.#membersFor(name);
    const i = this.#last(name, index);
    const start = i < 0 ? -1 : index[i + 2]!;
    return i < 0 || this.bytes[start] === N ? null : new Json(this.bytes, start, index[i + 3]!);
  }

  /** True if there are several members with this name. */
  repeats(name: string): boolean {
    const index = this.#membersFor(name);
    const last = this.#last(name, index);
    return last > 0 && this.#last(name, index, last) >= 0;
  }

  /** The members of an object by their names, those that are `null` too; empty where the value is none. */
  entries(): [name: string, value: Json][] {
    const index = this.#members() ?? this.#scanned();
    const entries: [string, Json][] = [];
    for (let i = 0; i < index.length; i += WIDTH) {
      const name = readString(this.bytes, index[i]! - 1, index[i + 1]! + 1) ?? '';
      entries.push([name, new Json(this.bytes, index[i + 2]!, index[i + 3]!)]);
    }
    return entries;
  }

  /** The items of a list; empty where the value is none. */
  items(): Json[] {
    const items: Json[] = [];
    scanItems(this.bytes, this.start, this.end, (start, end) => void items.push(new Json(this.bytes, start, end)));
    return items;
  }

  /** True if one of the items of a list passes the test, which gets no item after that. */
  some(test: (item: Json) => boolean): boolean {
    let passed = false;
    scanItems(this.bytes, this.start, this.end, (start, end) => {
      passed = test(new Json(this.bytes, start, end));
      return !passed;
    });
    return passed;
  }

  /** The first item of a list; null: there is none, or it is `null`. */
  first(): Json | null {
    let first: Json | null = null;
    scanItems(this.bytes, this.start, this.end, (start, end) => {
      if (this.bytes[start] !== N) first = new Json(this.bytes, start, end);
      return false;
    });
    return first;
  }

  /** The number of items of a list of numbers, without reading them. */
  count(): number {
    const { bytes, end } = this;
    let commas = 0;
    for (let at = bytes.indexOf(COMMA, this.start); at >= 0 && at < end; at = bytes.indexOf(COMMA, at + 1)) commas++;
    return commas > 0 || bytes.subarray(this.start + 1, end - 1).some((byte) => byte > SPACE) ? commas + 1 : 0;
  }

  /** The value, decoded. Throws SyntaxError where it is no JSON. */
  value(): unknown {
    return JSON.parse(this.bytes.toString('utf8', this.start, this.end));
  }

  /** The value, decoded; undefined: it is no JSON. */
  valueIfAny(): unknown {
    try {
      return this.value();
    } catch {
      return undefined;
    }
  }

  /** The text of a string; null: it is no string. */
  text(): string | null {
    return readString(this.bytes, this.start, this.end);
  }

  /** A string decoded; a number, `true` or `false` as it is written; null for the rest. */
  scalar(): string | null {
    return readScalarText(this.bytes, this.start, this.end);
  }

  /** null: it is no number. */
  number(): number | null {
    const { bytes, start, end } = this;
    if (end - start > MOST_DIGITS) return this.#anyNumber();
    let value = 0;
    for (let at = start; at < end; at++) {
      const digit = bytes[at]! - ZERO;
      if (digit < 0 || digit > 9) return this.#anyNumber();
      value = 10 * value + digit;
    }
    return value;
  }

  #anyNumber(): number | null {
    const text = this.isText ? null : this.scalar();
    return text === null || text === 'true' || text === 'false' ? null : Number(text);
  }

  /** As engines read it. */
  get isTrue(): boolean {
    return truthOf(this.scalar()) === true;
  }

  /** The bytes of the value: the memory is shared. */
  raw(): Buffer {
    return this.bytes.subarray(this.start, this.end);
  }

  /** Where the last member of this name before `end` is in the index; -1: there is none. */
  #last(name: string, index: readonly number[], end = index.length): number {
    const { length } = name;
    for (let i = end - WIDTH; i >= 0; i -= WIDTH) {
      const [from, to] = [index[i]!, index[i + 1]!];
      const isLikely = to - from === length || index[i + 4] === 1;
      if (isLikely && keyIs(this.bytes, from, to, name)) return i;
    }
    return -1;
  }

  /** null: there are too many. */
  #members(): readonly number[] | null {
    if (this.#index !== undefined) return this.#index;
    const object = this.isObject ? Json.object(this.bytes, this.start, this.end) : null;
    return (this.#index = object === null ? [] : object.#index!);
  }

  /** At least the last two members of this name. */
  #membersFor(name: string): readonly number[] {
    return this.#members() ?? this.#scanned((from, to) => keyIs(this.bytes, from, to, name), 2);
  }

  #scanned(isWanted: (keyStart: number, keyEnd: number) => boolean = () => true, most = Infinity): number[] {
    const index: number[] = [];
    scanMembers(this.bytes, this.start, this.end, (...member) => {
      if (!isWanted(member[0], member[1])) return;
      if (index.length >= WIDTH * most) index.splice(0, WIDTH);
      addTo(index, ...member);
    });
    return index;
  }
}

function addTo(index: number[], ...[keyStart, keyEnd, valueStart, valueEnd, isEscaped]: Parameters<VisitMember>): void {
  index.push(keyStart, keyEnd, valueStart, valueEnd, isEscaped ? 1 : 0);
}
