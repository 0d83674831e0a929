import type { TokenPieces } from './pieces.ts';

/** Tokens with the bytes of their texts. */
export interface AlignedTokens {
  readonly ids: Int32Array;
  /** Each has its usual text, so `ends` and `text` are empty. */
  readonly spelling: TokenPieces | null;
  /** After token `i` so many bytes of `text` are behind. */
  readonly ends: Uint32Array;
  readonly text: Buffer;
  /** Bytes at the end of `text` that the engine left out of its answer: what stopped it. */
  readonly hiddenBytes: number;
}

/**
 * Tokens that a text was encoded as. From the first token whose bytes are not those of the text (a normaliser was at work) all text
 * belongs to the last token: nothing may be cut inside.
 */
export function alignPrompt(
  pieces: TokenPieces,
  ids: Int32Array,
  text: Buffer,
  framing: readonly number[],
): AlignedTokens {
  const walk = new Walk(pieces, ids, text);
  // Added before the prompt, without text of their own.
  while (walk.i < framing.length && walk.i < ids.length && ids[walk.i] === framing[walk.i] && !walk.fits())
    walk.take(0);
  // Llama 2's encoders put a space before the text that is not in it.
  if (pieces.prependsSpace && walk.i < ids.length && !walk.fits()) walk.takeWithoutSpace();
  while (walk.i < ids.length && walk.fits()) walk.takePiece();
  while (walk.i < ids.length && walk.at === text.length && pieces.isSpecial(ids[walk.i]!)) walk.take(0);
  if (walk.i < ids.length || walk.at < text.length) walk.giveRestToLast();
  return { ids, spelling: null, ends: walk.ends, text, hiddenBytes: 0 };
}

/** Tokens without a separate text: each has its usual text. null: that of one of them is not known. */
export function alignIds(pieces: TokenPieces, ids: Int32Array): AlignedTokens | null {
  return pieces.areKnown(ids) ? spelledTokens(pieces, ids) : null;
}

/**
 * Sampled tokens beside the text that the engine gave for them: special tokens may be left out of it (`skip_special_tokens`), what
 * stopped it may be cut off, and parts of UTF-8 letters read as U+FFFD.
 *
 * @param wasStopped false: it was aborted or broke off, so that no token at its end is what stopped it
 */
export function alignSampled(pieces: TokenPieces, ids: Int32Array, answer: Buffer, wasStopped = true): AlignedTokens {
  // Nearly always.
  if (pieces.spell(ids, answer)) return spelledTokens(pieces, ids);
  const walk = new Walk(pieces, ids, answer);
  const hasStop = wasStopped && isStopToken(pieces, ids, answer);
  const last = ids.length - (hasStop ? 1 : 0);
  while (walk.i < last && walk.at < answer.length) {
    const fits = walk.fits();
    if (fits && !walk.endsInBrokenLetter(last)) walk.takePiece();
    else if (!fits && pieces.isSpecial(ids[walk.i]!)) walk.take(0);
    else if (walk.takeLetters(last)) continue;
    else if (fits) walk.takePiece();
    else break;
  }
  // No stop text was cut off: they are left out as those in between are, and stay where the text goes on.
  if (hasStop || !wasStopped) {
    while (walk.i < last && walk.at === answer.length && pieces.isSpecial(ids[walk.i]!)) walk.take(0);
  }
  const isCut = isBegunBy(pieces, ids.subarray(walk.i, last), answer.subarray(walk.at));
  if (!isCut) walk.giveRestToLast(last);
  // The answer may end inside of a token: a stop text began there. What is behind it is known nevertheless.
  const parts = [answer.subarray(0, walk.at)];
  while (walk.i < ids.length) {
    const bytes = pieces.bytesOf(ids[walk.i]!) ?? Buffer.alloc(0);
    parts.push(bytes);
    walk.take(bytes.length);
  }
  const text = parts.length === 1 ? answer : Buffer.concat(parts);
  return { ids, spelling: null, ends: walk.ends, text, hiddenBytes: text.length - answer.length };
}

/**
 * Sampled tokens that came without a text: theirs is what they stand for, without the token that stopped them. Where what a token
 * stands for depends on its neighbours they have no text, and are found by their ids alone.
 */
export function alignUnseen(pieces: TokenPieces, ids: Int32Array, wasStopped: boolean): AlignedTokens {
  const last = ids.at(-1);
  const seen = wasStopped && last !== undefined && pieces.isSpecial(last) ? ids.subarray(0, -1) : ids;
  const text = pieces.areKnown(ids) ? Buffer.concat(Array.from(seen, (id) => pieces.bytesOf(id)!)) : NO_TEXT;
  return alignSampled(pieces, ids, text, wasStopped);
}

const NO_ENDS = new Uint32Array(0);
const NO_TEXT = Buffer.alloc(0);

const spelledTokens = (spelling: TokenPieces, ids: Int32Array): AlignedTokens => {
  return { ids, spelling, ends: NO_ENDS, text: NO_TEXT, hiddenBytes: 0 };
};

/** Whether the last token ended the turn and was left out of the text. */
function isStopToken(pieces: TokenPieces, ids: Int32Array, answer: Buffer): boolean {
  const id = ids.at(-1);
  if (id === undefined || !pieces.isSpecial(id)) return false;
  const bytes = pieces.bytesOf(id)!;
  return answer.length < bytes.length || !answer.subarray(-bytes.length).equals(bytes);
}

/** Whether the text of these tokens begins with `text`. */
function isBegunBy(pieces: TokenPieces, ids: Int32Array, text: Buffer): boolean {
  let at = 0;
  for (const id of ids) {
    const bytes = pieces.bytesOf(id);
    if (bytes === null) return false;
    const shared = Math.min(bytes.length, text.length - at);
    if (bytes.compare(text, at, at + shared, 0, shared) !== 0) return false;
    at += shared;
    if (at === text.length) return true;
  }
  return at === text.length;
}

/** So many tokens without a letter that begins with one of them are no text. */
const MAX_LETTER_TOKENS = 16;

/** Goes along tokens and text together. */
class Walk {
  readonly ends: Uint32Array;
  i = 0;
  at = 0;
  readonly #pieces: TokenPieces;
  readonly #ids: Int32Array;
  readonly #text: Buffer;

  constructor(pieces: TokenPieces, ids: Int32Array, text: Buffer) {
    this.#pieces = pieces;
    this.#ids = ids;
    this.#text = text;
    this.ends = new Uint32Array(ids.length);
  }

  fits(): boolean {
    const bytes = this.#pieces.bytesOf(this.#ids[this.i]!);
    if (bytes === null || this.at + bytes.length > this.#text.length) return false;
    // Pieces are short: a call to compare them costs more than they do.
    for (let i = 0; i < bytes.length; i++) if (bytes[i] !== this.#text[this.at + i]) return false;
    return true;
  }

  takePiece(): void {
    this.take(this.#pieces.bytesOf(this.#ids[this.i]!)!.length);
  }

  take(bytes: number): void {
    this.at += bytes;
    this.ends[this.i++] = this.at;
  }

  takeWithoutSpace(): void {
    const bytes = this.#pieces.bytesOf(this.#ids[this.i]!)?.subarray(1) ?? null;
    if (bytes !== null && this.#text.subarray(0, bytes.length).equals(bytes)) this.take(bytes.length);
  }

  /** The text goes on inside of a letter behind this token, the next one does not: it was U+FFFD that began with the same byte. */
  endsInBrokenLetter(last: number): boolean {
    const end = this.at + (this.#pieces.bytesOf(this.#ids[this.i]!)?.length ?? 0);
    return (this.#text[end] ?? 0) >> 6 === 2 && !this.#goesOnInLetter(this.i + 1, last);
  }

  /**
   * Takes tokens up to where a letter may begin: the last of them gets their text. Bytes that are no UTF-8 read as U+FFFD. Special
   * tokens that are left out may stand among them. False: they are not what the text goes on with.
   */
  takeLetters(last: number): boolean {
    let raw = Buffer.alloc(0);
    for (let i = this.i; i < Math.min(last, this.i + MAX_LETTER_TOKENS); i++) {
      const id = this.#ids[i]!;
      const bytes = this.#pieces.bytesOf(id);
      if (bytes === null) return false;
      if (this.#pieces.isSpecial(id)) continue;
      raw = Buffer.concat([raw, bytes]);
      if (this.#goesOnInLetter(i + 1, last)) continue;
      const text = Buffer.from(raw.toString('utf8'));
      const end = this.at + text.length;
      if (end > this.#text.length || text.compare(this.#text, this.at, end) !== 0) return false;
      while (this.i < i) this.take(0);
      this.take(text.length);
      return true;
    }
    return false;
  }

  /** The next bytes may belong to a letter that has begun. */
  #goesOnInLetter(from: number, last: number): boolean {
    let i = from;
    while (i < last && this.#pieces.isSpecial(this.#ids[i]!)) i++;
    const byte = i < last ? this.#pieces.bytesOf(this.#ids[i]!)?.[0] : undefined;
    return byte !== undefined && byte >> 6 === 2;
  }

  giveRestToLast(last = this.#ids.length): void {
    if (last === 0) return;
    for (; this.i < last; this.i++) this.ends[this.i] = this.at;
    this.at = this.#text.length;
    this.ends[last - 1] = this.at;
  }
}
