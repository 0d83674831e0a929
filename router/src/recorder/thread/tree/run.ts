/** What ids stand for by themselves. It never changes. */
export interface Spelling {
  /** null: not known. */
  bytesOf(id: number): Buffer | null;
  /** The first byte of what an id stands for; -1: it has no text. */
  firstByteOf(id: number): number;
  /** Bytes of what all of these ids stand for. */
  lengthOf(ids: Int32Array, from: number, to: number): number;
  /** How many of these ids, one after the other, stand for what `text` goes on with at `textAt`. */
  match(ids: Int32Array, from: number, to: number, text: Buffer, textAt: number): TextShared;
}

export interface TextShared {
  /** Those that are there as a whole. */
  readonly tokens: number;
  /** With those of the next token. */
  readonly bytes: number;
}

/** Tokens of one kind in a row. A tree copies what it takes of them. */
export interface Run {
  readonly ids: Int32Array;
  /**
   * Each token has the text that it stands for here, and what is said below counts for nothing: a text is only needed once somebody
   * comes with one. null: it may be another.
   */
  readonly spelling: Spelling | null;
  /** After token `i` so many bytes of `text` are behind. */
  readonly ends: Int32Array | Uint32Array;
  readonly text: Buffer;
  /** Of sampled tokens; NaN: not known. null: of none. */
  readonly logprobs: Float64Array | null;
  readonly isSampled: boolean;
}

/** The text of one token. */
export function pieceOf({ ids, spelling, ends, text }: Run, at: number): Buffer {
  return spelling === null ? text.subarray(at === 0 ? 0 : ends[at - 1], ends[at]) : spelling.bytesOf(ids[at]!)!;
}
