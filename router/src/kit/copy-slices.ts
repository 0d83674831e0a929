import { copyTo } from './bytes.ts';

/** Bytes that are copied in one turn of the event loop: 2 ms where the memory is new, since the system has to find its pages. */
export const SLICE_BYTES = 1_048_576;
/** What a piece counts beside its bytes: a million pieces of one byte take longer than one of a million. */
const PIECE_BYTES = 256;

/** Lays pieces together, about so many bytes at a step. @returns, at each step and at the end, how many are copied */
export function* copySlices(
  pieces: readonly Uint8Array[],
  target: Uint8Array,
  sliceBytes: number,
  pieceBytes = PIECE_BYTES,
): Generator<number, number> {
  let at = 0;
  let inSlice = 0;
  for (const piece of pieces) {
    for (let from = 0; from < piece.length;) {
      if (inSlice >= sliceBytes) {
        yield at;
        inSlice = 0;
      }
      const part = piece.subarray(from, from + Math.min(piece.length - from, sliceBytes - inSlice));
      copyTo(target, at, part);
      at += part.length;
      inSlice += part.length;
      from += part.length;
    }
    inSlice += pieceBytes;
  }
  return at;
}

/**
 * Lays pieces together in new memory, a slice in each turn of the event loop; the first in this one.
 * @param isWanted asked before each further slice; false: `done` is not called any more
 */
export function copyInTurns(
  pieces: readonly Uint8Array[],
  bytes: number,
  isWanted: () => boolean,
  done: (copy: Buffer) => void,
): void {
  const copy = Buffer.allocUnsafeSlow(bytes);
  const slices = copySlices(pieces, copy, SLICE_BYTES);
  const next = (): void => {
    if (!isWanted()) return;
    if (slices.next().done === true) done(copy);
    else setImmediate(next);
  };
  next();
}

/** As `copyInTurns`. Resolves to null when the copy is not wanted any more. */
export const copiedTogether = (
  pieces: readonly Uint8Array[],
  bytes: number,
  isWanted: () => boolean,
): Promise<Buffer | null> =>
  new Promise((resolve) => {
    const isStillWanted = (): boolean => {
      if (isWanted()) return true;
      resolve(null);
      return false;
    };
    copyInTurns(pieces, bytes, isStillWanted, resolve);
  });

/** A copy in memory of its own, to be given to a thread: made in several turns where it is large. */
export async function copied(bytes: Uint8Array): Promise<Uint8Array<ArrayBuffer>> {
  const { buffer, length } = (await copiedTogether([bytes], bytes.length, () => true))!;
  return new Uint8Array(buffer as ArrayBuffer, 0, length);
}
