const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN = 0x5b;
const CLOSE = 0x5d;
const ZERO = 0x30;

const KEYS = ['"index"', '"meta_info"', '"completion_tokens"', '"output_ids"', '"output_token_logprobs"'] as const;
type Key = (typeof KEYS)[number];
const keys = KEYS.map((key) => [key, Buffer.from(key)] as const);
/** As much as a key with its colon and a number behind it may take. */
const TAIL_BYTES = 64;
const SCAN_BYTES = 65_536;
/** What is looked at, behind the end of what came before: the same memory for all. */
const scratch = Buffer.allocUnsafeSlow(TAIL_BYTES + SCAN_BYTES);

/** What follows a key, with its digits if it is a number. */
const VALUE = /^\s*:\s*(\d*)/;
/** Enough of that to take it. */
const WHOLE = /^\s*(?:[^:\s]|:\s*(?:\d+\D|[^\d\s]))/;
const textAt = (bytes: Buffer, at: number): string => bytes.toString('latin1', at, at + TAIL_BYTES);

/**
 * Reads out of an event of SGLang's `/generate`, while it comes and whatever its size, which sample it is of and how many tokens it
 * has. Nothing is parsed: a key within a string has its quotes escaped, so it is found by plain search.
 */
export class EventScan {
  /** As it is written; '' for the only one. */
  index = '';
  hasIndex = false;
  hasInfo = false;
  #total = -1;
  #ids = -1;
  #logprobs = -1;
  /** The end of what came before: a key may have begun there. */
  #tail: Buffer = Buffer.alloc(0);
  /** How much came before `#tail`. */
  #gone = 0;
  /** Up to where keys were read, of all that came. */
  #read = 0;
  #list: ListCount | null = null;

  push(bytes: Buffer, start: number, end: number): void {
    for (let at = start; at < end; at += SCAN_BYTES) this.#scan(bytes, at, Math.min(end, at + SCAN_BYTES));
  }

  #scan(bytes: Buffer, start: number, end: number): void {
    const before = this.#tail.copy(scratch);
    const all = scratch.subarray(0, before + bytes.copy(scratch, before, start, end));
    let from = this.#list === null ? Math.max(0, this.#read - this.#gone) : this.#count(all, this.#tail.length);
    const found = keys.map(([, key]) => all.indexOf(key, from));
    for (;;) {
      let first = -1;
      for (const [i, [, key]] of keys.entries()) {
        if (found[i]! >= 0 && found[i]! < from) found[i] = all.indexOf(key, from);
        if (found[i]! >= 0 && (first < 0 || found[i]! < found[first]!)) first = i;
      }
      if (first < 0) break;
      const [name, key] = keys[first]!;
      const valueAt = found[first]! + key.length;
      // The rest of it comes with the next piece.
      if (all.length - valueAt < TAIL_BYTES / 2 && !WHOLE.test(textAt(all, valueAt))) break;
      from = all[found[first]! - 1] === BACKSLASH ? valueAt : this.#take(name, all, valueAt);
      this.#read = this.#gone + from;
    }
    const keep = this.#list === null ? Math.min(TAIL_BYTES, all.length) : 0;
    this.#gone += all.length - keep;
    this.#tail = Buffer.from(all.subarray(all.length - keep));
  }

  /** How many ids it has and how many tokens there are so far; null: it does not say. */
  get counts(): { ids: number; total: number } | null {
    const ids = this.#ids >= 0 ? this.#ids : this.#logprobs;
    return ids < 0 || this.#total < 0 ? null : { ids, total: this.#total };
  }

  /** @returns where the search goes on */
  #take(name: Key, all: Buffer, at: number): number {
    const value = VALUE.exec(textAt(all, at));
    // A token may be spelled like a key.
    if (value === null) return at;
    const [whole, text = ''] = value;
    if (name === '"meta_info"') this.hasInfo = true;
    else if (name === '"index"') {
      this.hasIndex = true;
      this.index = text;
    } else if (name === '"completion_tokens"') {
      if (text !== '') this.#total = Number(text);
    } else if (all[at + whole.length] === OPEN) {
      this.#list = new ListCount((count) => {
        if (name === '"output_ids"') this.#ids = count;
        else this.#logprobs = count;
      });
      return this.#count(all, at + whole.length);
    }
    return at;
  }

  /** Goes on in a list. @returns where it ends */
  #count(all: Buffer, from: number): number {
    const end = this.#list!.push(all, from);
    if (this.#list!.isOver) this.#list = null;
    return end;
  }
}

/** Counts the items of a list that comes in pieces. */
class ListCount {
  isOver = false;
  readonly #done: (count: number) => void;
  #depth = 0;
  #commas = 0;
  #hasItem = false;
  #isInString = false;
  #isEscaped = false;

  constructor(done: (count: number) => void) {
    this.#done = done;
  }

  /** @returns the index after the list, or the end of `bytes` */
  push(bytes: Buffer, from: number): number {
    for (let i = from; i < bytes.length; i++) {
      const byte = bytes[i]!;
      if (this.#isEscaped) this.#isEscaped = false;
      else if (this.#isInString) {
        if (byte === BACKSLASH) this.#isEscaped = true;
        else if (byte === QUOTE) this.#isInString = false;
      } else if (byte === QUOTE) this.#isInString = true;
      else if (byte === OPEN) {
        if (++this.#depth > 1) this.#hasItem = true;
      } else if (byte === CLOSE) {
        if (--this.#depth > 0) continue;
        this.isOver = true;
        this.#done(this.#hasItem ? this.#commas + 1 : 0);
        return i + 1;
      } else if (byte === COMMA && this.#depth === 1) this.#commas++;
      else if (byte >= ZERO) this.#hasItem = true;
    }
    return bytes.length;
  }
}
