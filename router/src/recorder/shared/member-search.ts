const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const SPACE = 0x20;
const NOTHING: Buffer = Buffer.alloc(0);

/**
 * Takes the value of the key with index `key`, whose first byte is at `at`.
 * @returns where the search goes on; `end` where the value may go on in the next piece
 */
export type TakeValue = (key: number, bytes: Buffer, at: number, end: number) => number;

export const keysOf = (names: readonly string[]): Buffer[] => names.map((name) => Buffer.from(`"${name}"`));

/**
 * Finds members by their keys in JSON that comes in pieces, whatever its size and wherever the pieces begin. Nothing is parsed: a key within
 * a string has its quotes escaped, so a key is found by plain search for its bytes.
 */
export class MemberSearch {
  readonly #keys: readonly Buffer[];
  readonly #longest: number;
  /** The index of the key whose value was not reached yet; -1: none. */
  #key = -1;
  #hasColon = false;
  /** The end of the last piece, where a key may have begun. */
  #begun = NOTHING;
  /** The last byte of the last piece. */
  #last = SPACE;

  /** @param keys made by `keysOf` */
  constructor(keys: readonly Buffer[]) {
    this.#keys = keys;
    this.#longest = Math.max(...this.#keys.map(({ length }) => length));
  }

  push(bytes: Buffer, start: number, end: number, take: TakeValue): void {
    if (start >= end) return;
    const piece = bytes.subarray(start, end);
    const next = this.#keys.map(() => -1);
    for (let at = 0; at < piece.length;) {
      if (this.#key < 0) at = this.#begun.length > 0 ? this.#goOn(piece) : this.#find(piece, at, next);
      else if (piece[at]! <= SPACE) at++;
      else if (this.#hasColon) {
        const key = this.#key;
        this.#key = -1;
        at = take(key, bytes, start + at, end) - start;
      } else if (piece[at] === COLON) {
        this.#hasColon = true;
        at++;
      } else this.#key = -1;
    }
    this.#last = piece[piece.length - 1]!;
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
    const key = this.#keys.findIndex((each) => isBeginning(each, joined));
    if (key >= 0) {
      this.#found(key);
      return this.#keys[key]!.length - begun;
    }
    if (!this.#keys.some((each) => isBeginning(joined, each))) return 0;
    this.#begun = joined;
    return piece.length;
  }

  /** @param next where each key is found next, as far as that is known @returns where the search goes on */
  #find(piece: Buffer, from: number, next: number[]): number {
    let first = 0;
    for (let i = 0; i < this.#keys.length; i++) {
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
    if (mayBegin && this.#keys.some((key) => isBeginning(tail, key))) this.#begun = Buffer.from(tail);
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
