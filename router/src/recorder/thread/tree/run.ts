import type { AlignedTokens } from '../tokens/align.ts';

/** Tokens of one kind in a row. A tree copies what it takes of them. */
export interface Run extends Omit<AlignedTokens, 'hiddenBytes'> {
  /** Of sampled tokens; NaN: not known. null: of none. */
  readonly logprobs: Float64Array | null;
  readonly isSampled: boolean;
}

/** The text of one token. */
export function pieceOf({ ids, spelling, ends, text }: Run, at: number): Buffer {
  return spelling === null ? text.subarray(at === 0 ? 0 : ends[at - 1], ends[at]) : spelling.bytesOf(ids[at]!)!;
}

/** How many tokens are the same in both, with the same text, from these positions on. */
export function sharedTokens(a: Run, aAt: number, b: Run, bAt: number): number {
  const most = Math.min(a.ids.length - aAt, b.ids.length - bAt);
  const isAlike = a.spelling !== null && a.spelling === b.spelling;
  let shared = 0;
  while (
    shared < most &&
    a.ids[aAt + shared] === b.ids[bAt + shared] &&
    (isAlike || pieceOf(a, aAt + shared).equals(pieceOf(b, bAt + shared)))
  )
    shared++;
  return shared;
}
