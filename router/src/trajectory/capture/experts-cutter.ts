const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const SPACE = 0x20;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** What engines call the tensors that are cut out: the experts that tokens went to, and the tokens that sparse attention looked at. */
const KEYS = ['"routed_experts"', '"indexer_topk"'].map((key) => Buffer.from(key));
const LONGEST = Math.max(...KEYS.map(({ length }) => length));
/** What describes a tensor is short. */
const MAX_DESCRIPTION_BYTES = 4_096;

/** base64 text, or nested lists of decimal numbers. */
export type ExpertsForm = 'base64' | 'list';

/** Gets an answer in two parts. Bytes are valid during the call only. */
export interface CutTaker {
  /** What is left of the answer, in its order: where experts stood, a mark stands (`markOf`). */
  rest(bytes: Buffer, start: number, end: number): void;
  /** A piece of the value number `cut`. */
  piece(cut: number, form: ExpertsForm, bytes: Buffer, start: number, end: number): void;
  /** It is complete. `description`: the object that it stood in, its data aside; '' where it stood alone. */
  end(cut: number, description: string): void;
}

type State = 'seek' | 'colon' | 'value' | 'string' | 'list' | 'object';

const MARK = 'turnout-experts-';

/** @returns the number of the value that was cut out here; -1: none was. Takes the forms in which engines say it. */
export function markOf(value: unknown): number {
  const text = typeof value === 'object' && value !== null ? (value as { data?: unknown }).data : value;
  return typeof text === 'string' && text.startsWith(MARK) ? Number(text.slice(MARK.length)) : -1;
}

/** Whether `bytes` go on with a key from its byte `from` on, as far as both go. */
function isBeginning(key: Buffer, from: number, bytes: Buffer): boolean {
  const count = Math.min(key.length - from, bytes.length);
  return key.compare(bytes, 0, count, from, from + count) === 0;
}

/**
 * Cuts the values of "routed_experts" and "indexer_topk" out of an answer while it passes, whatever else the answer is and wherever its pieces
 * begin: tensors of 100 MB that nobody parses. SGLang says it as base64 in `meta_info` (`sglext` where OpenAI's paths were
 * called), vLLM as base64 of a .npy file in a choice; others as `{data, shape, dtype}` or as nested lists.
 *
 * A key within a string has its quotes escaped, so the key's own bytes are found by plain search.
 */
export class ExpertsCutter {
  readonly #taker: CutTaker;
  readonly #mark: (cut: number) => string;
  #state: State = 'seek';
  /** How many bytes of a key the last piece ended with. */
  #matched = 0;
  /** Those that begin so. */
  #begun: readonly Buffer[] = KEYS;
  /** The last byte of the piece before. */
  #last = SPACE;
  #cut = -1;
  #depth = 0;
  /** What was read of the object that the value is; null: it is none. */
  #description: string | null = null;

  /** @param mark what stands in the place of a value, by its number */
  constructor(taker: CutTaker, mark = (cut: number) => MARK + cut) {
    this.#taker = taker;
    this.#mark = mark;
  }

  push(bytes: Buffer, start: number, end: number): void {
    if (start >= end) return;
    let at = start;
    while (at < end) {
      if (this.#state === 'seek') at = this.#seek(bytes, at, end);
      else if (this.#state === 'string') at = this.#string(bytes, at, end);
      else if (this.#state === 'list') at = this.#list(bytes, at, end);
      else if (this.#state === 'object') at = this.#object(bytes, at, end);
      else at = this.#between(bytes, at, end);
    }
    this.#last = bytes[end - 1]!;
  }

  #seek(bytes: Buffer, start: number, end: number): number {
    let at = this.#goOnMatching(bytes, start, end);
    if (at < 0) at = this.#find(bytes, start, end);
    if (at > start) this.#taker.rest(bytes, start, at);
    return at;
  }

  /** The key may have begun in the piece before. @returns where it ends; -1: it did not */
  #goOnMatching(bytes: Buffer, start: number, end: number): number {
    const matched = this.#matched;
    this.#matched = 0;
    if (matched === 0) return -1;
    const rest = bytes.subarray(start, Math.min(end, start + LONGEST));
    const going = this.#begun.filter((key) => isBeginning(key, matched, rest));
    const whole = going.find(({ length }) => length <= matched + rest.length);
    if (whole !== undefined) {
      this.#state = 'colon';
      return start + whole.length - matched;
    }
    if (going.length === 0) return -1;
    this.#matched = matched + rest.length;
    this.#begun = going;
    return end;
  }

  #find(bytes: Buffer, start: number, end: number): number {
    const piece = start === 0 && end === bytes.length ? bytes : bytes.subarray(start, end);
    let found = -1;
    let after = -1;
    for (const key of KEYS) {
      const at = this.#keyIn(piece, key);
      if (at >= 0 && (found < 0 || at < found)) [found, after] = [at, at + key.length];
    }
    if (found >= 0) {
      this.#state = 'colon';
      return start + after;
    }
    // The beginning of a key has one quote, its first byte.
    const from = piece.lastIndexOf(QUOTE);
    const tail = piece.length - from;
    if (from >= 0 && tail < LONGEST) {
      const before = from > 0 ? piece[from - 1]! : this.#last;
      this.#begun = before === BACKSLASH ? [] : KEYS.filter((key) => isBeginning(key, 0, piece.subarray(from)));
      if (this.#begun.length > 0) this.#matched = tail;
    }
    return end;
  }

  #keyIn(piece: Buffer, key: Buffer): number {
    for (let at = piece.indexOf(key); at >= 0; at = piece.indexOf(key, at + 1)) {
      const before = at > 0 ? piece[at - 1]! : this.#last;
      if (before !== BACKSLASH) return at;
    }
    return -1;
  }

  /** Between key and value. */
  #between(bytes: Buffer, start: number, end: number): number {
    let at = start;
    while (at < end && bytes[at]! <= SPACE) at++;
    if (at === end) {
      this.#taker.rest(bytes, start, end);
      return end;
    }
    const byte = bytes[at]!;
    if (this.#state === 'colon') this.#state = byte === COLON ? 'value' : 'seek';
    else if (byte === QUOTE) this.#begin('string');
    else if (byte === OPEN_ARRAY) {
      // The list goes as a whole, a string stands in its place.
      if (at > start) this.#taker.rest(bytes, start, at);
      this.#say('"');
      this.#begin('list');
      this.#depth = 0;
      return at;
    } else if (byte === OPEN_OBJECT) {
      this.#state = 'object';
      this.#description = '';
      this.#depth = 0;
      if (at > start) this.#taker.rest(bytes, start, at);
      return at;
    } else this.#state = 'seek';
    // What is no value of ours may be the quote of the next key.
    const isPassed = this.#state !== 'seek';
    const upTo = isPassed ? at + 1 : at;
    if (upTo > start) this.#taker.rest(bytes, start, upTo);
    if (this.#state === 'string') this.#say(this.#mark(this.#cut));
    return upTo;
  }

  #begin(state: 'string' | 'list'): void {
    this.#state = state;
    this.#cut++;
    if (state === 'list') this.#say(this.#mark(this.#cut));
  }

  #string(bytes: Buffer, start: number, end: number): number {
    const found = bytes.indexOf(QUOTE, start);
    const stop = found < 0 || found >= end ? end : found;
    if (stop > start) this.#taker.piece(this.#cut, 'base64', bytes, start, stop);
    if (stop === end) return end;
    this.#taker.rest(bytes, stop, stop + 1);
    if (this.#description === null) {
      this.#taker.end(this.#cut, '');
      this.#state = 'seek';
    } else {
      this.#description += '"';
      this.#state = 'object';
    }
    return stop + 1;
  }

  #list(bytes: Buffer, start: number, end: number): number {
    let at = start;
    while (at < end) {
      const byte = bytes[at++]!;
      if (byte === OPEN_ARRAY) this.#depth++;
      else if (byte === CLOSE_ARRAY && --this.#depth === 0) {
        this.#taker.piece(this.#cut, 'list', bytes, start, at);
        this.#taker.end(this.#cut, '');
        this.#say('"');
        this.#state = 'seek';
        return at;
      }
    }
    this.#taker.piece(this.#cut, 'list', bytes, start, end);
    return end;
  }

  /** Reads the object that describes the tensor, and cuts out its data. */
  #object(bytes: Buffer, start: number, end: number): number {
    for (let at = start; at < end; at++) {
      const byte = bytes[at]!;
      const soFar: string = this.#description!;
      this.#description = soFar + String.fromCharCode(byte);
      const isData = byte === QUOTE && /"data"\s*:\s*$/.test(soFar);
      if (byte === OPEN_OBJECT) this.#depth++;
      else if (byte === CLOSE_OBJECT) this.#depth--;
      const isOver = this.#depth === 0 || this.#description.length > MAX_DESCRIPTION_BYTES;
      if (!isData && !isOver) continue;
      this.#taker.rest(bytes, start, at + 1);
      if (isData) {
        this.#begin('string');
        this.#say(this.#mark(this.#cut));
      } else {
        const hasData = /"data"\s*:\s*""/.test(this.#description);
        if (hasData) this.#taker.end(this.#cut, this.#description);
        this.#description = null;
        this.#state = 'seek';
      }
      return at + 1;
    }
    this.#taker.rest(bytes, start, end);
    return end;
  }

  #say(text: string): void {
    const bytes = Buffer.from(text);
    this.#taker.rest(bytes, 0, bytes.length);
  }
}
