const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const SPACE = 0x20;
const NOTHING: Buffer = Buffer.alloc(0);

/** Reads one value, wherever the pieces begin that it comes in. */
export interface OpenValue {
  /** The value is taken out: of its bytes it passes on what is left of them. */
  readonly isCut: boolean;
  readonly isOver: boolean;
  /** @returns the index after the bytes that are of the value */
  push(bytes: Buffer, from: number, end: number): number;
}

/** Bytes are valid during the call only. */
export interface MemberTaker {
  /** @param key the index of the key @param byte the first of the value @returns null: the value is not read */
  value(key: number, byte: number): OpenValue | null;
  /** All bytes in their order, but those of values that are cut out. */
  rest(bytes: Buffer, start: number, end: number): void;
}

export const keysOf = (names: readonly string[]): Buffer[] => names.map((name) => Buffer.from(`"${name}"`));

/**
 * Finds members by their keys in JSON that comes in pieces, whatever its size and wherever the pieces begin. Nothing is parsed: a key within
 * a string has its quotes escaped, so a key is found by plain search for its bytes.
 */
export class MemberSearch {
  readonly #keys: readonly Buffer[];
  readonly #longest: number;
  readonly #taker: MemberTaker;
  /** How many of the keys are searched for. */
  #count: number;
  /** Where each key is found next in the present piece, as far as that is known. */
  readonly #next: number[];
  /** The index of the key whose value was not reached yet; -1: none. */
  #key = -1;
  #hasColon = false;
  /** The value that is being read. */
  #open: OpenValue | null = null;
  /** The end of the last piece, where a key may have begun. */
  #begun = NOTHING;
  /** The last byte of the last piece. */
  #last = SPACE;

  /** @param keys made by `keysOf` */
  constructor(keys: readonly Buffer[], taker: MemberTaker) {
    this.#keys = keys;
    this.#longest = Math.max(...keys.map(({ length }) => length));
    this.#taker = taker;
    this.#count = keys.length;
    this.#next = keys.map(() => -1);
  }

  /** From here on only the first `count` keys are searched for. */
  limit(count: number): void {
    this.#count = count;
  }

  /** The text is over, complete or not: what comes is another one. */
  reset(): void {
    this.#key = -1;
    this.#open = null;
    this.#begun = NOTHING;
  }

  push(bytes: Buffer, start: number, end: number): void {
    if (start >= end) return;
    const piece = bytes.subarray(start, end);
    this.#next.fill(-1);
    let passed = start;
    for (let at = 0; at < piece.length;) {
      if (this.#open !== null) {
        const { isCut } = this.#open;
        if (isCut && start + at > passed) this.#taker.rest(bytes, passed, start + at);
        const after = this.#open.push(bytes, start + at, end);
        if (isCut) passed = after;
        if (this.#open.isOver) this.#open = null;
        at = after - start;
      } else if (this.#key < 0) at = this.#begun.length > 0 ? this.#goOn(piece) : this.#find(piece, at);
      else if (piece[at]! <= SPACE) at++;
      else if (this.#hasColon) {
        const key = this.#key;
        this.#key = -1;
        this.#open = this.#taker.value(key, piece[at]!);
      } else if (piece[at] === COLON) {
        this.#hasColon = true;
        at++;
      } else this.#key = -1;
    }
    this.#last = piece[piece.length - 1]!;
    if (passed < end) this.#taker.rest(bytes, passed, end);
  }

  #found(key: number): void {
    this.#key = key;
    this.#hasColon = false;
  }

  /** The key that may have begun in the piece before. @returns where the search goes on */
  #goOn(piece: Buffer): number {
    const begun = this.#begun.length;
    const joined = Buffer.concat([this.#begun, piece.subarray(0, this.#longest - begun)]);
    this.#begun = NOTHING;
    const keys = this.#keys.slice(0, this.#count);
    const key = keys.findIndex((each) => isBeginning(each, joined));
    if (key >= 0) {
      this.#found(key);
      return keys[key]!.length - begun;
    }
    if (!keys.some((each) => isBeginning(joined, each))) return 0;
    this.#begun = joined;
    return piece.length;
  }

  /** @returns where the search goes on */
  #find(piece: Buffer, from: number): number {
    const next = this.#next;
    let first = 0;
    for (let i = 0; i < this.#count; i++) {
      if (next[i]! < from) next[i] = this.#indexOf(piece, this.#keys[i]!, from);
      if (next[i]! < next[first]!) first = i;
    }
    const at = next[first]!;
    if (at < piece.length) {
      this.#found(first);
      return at + this.#keys[first]!.length;
    }
    // A key that begins here has one quote yet, its first byte.
    const quote = piece.lastIndexOf(QUOTE);
    const tail = piece.subarray(quote);
    const mayBegin = quote >= from && tail.length < this.#longest && !this.#isEscaped(piece, quote);
    if (mayBegin && this.#keys.some((key, i) => i < this.#count && isBeginning(tail, key)))
      this.#begun = Buffer.from(tail);
    return piece.length;
  }

  /** @returns the length of the piece where the key is not in it */
  #indexOf(piece: Buffer, key: Buffer, from: number): number {
    let at = piece.indexOf(key, from);
    while (at >= 0 && this.#isEscaped(piece, at)) at = piece.indexOf(key, at + 1);
    return at < 0 ? piece.length : at;
  }

  #isEscaped(piece: Buffer, at: number): boolean {
    return (at > 0 ? piece[at - 1] : this.#last) === BACKSLASH;
  }
}

const isBeginning = (bytes: Buffer, whole: Buffer): boolean =>
  bytes.length <= whole.length && bytes.equals(whole.subarray(0, bytes.length));
