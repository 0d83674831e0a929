/** The texts of token ids, independent of their neighbours. They never change. */
export interface Spelling {
  /** null: not known. */
  bytesOf(id: number): Buffer | null;
  /** The first byte of an id's text; -1: it has no text. */
  firstByteOf(id: number): number;
  /** The number of bytes of the text of these ids. */
  lengthOf(ids: Int32Array, from: number, to: number): number;
  /** How many of these ids, in order, have the text that continues `text` at `textAt`. */
  match(ids: Int32Array, from: number, to: number, text: Buffer, textAt: number): TextShared;
}

export interface TextShared {
  /** Complete tokens. */
  readonly tokens: number;
  /** Including a part of the next token. */
  readonly bytes: number;
}

/** Tokens of one kind in a row. A tree copies what it takes of them. */
export interface Run {
  readonly ids: Int32Array;
  /**
   * The texts of the ids; `ends` and `text` are empty then. null: tokens may have other texts.
   */
  readonly spelling: Spelling | null;
  /** The end of token `i` in `text`, in bytes. */
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
