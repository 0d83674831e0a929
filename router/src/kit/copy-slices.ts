import { copyTo } from './bytes.ts';

/** Bytes copied per turn of the event loop: 2 ms if the memory is new and its pages must be mapped. */
export const SLICE_BYTES = 1_048_576;
/** The cost of a piece in bytes: a million pieces of one byte take longer than one of a million. */
const PIECE_BYTES = 256;

/** Joins pieces, about `sliceBytes` per step. @returns the number of copied bytes, at each step and at the end */
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
 * Joins pieces in new memory, one slice per turn of the event loop, the first one now.
 * @param isWanted called before each further slice; if false, `done` is not called
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

/** As `copyInTurns`. @returns null: the copy is not wanted any more */
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

/** A copy that can be transferred to a thread; a large one is made over several turns of the event loop. */
export async function copied(bytes: Uint8Array): Promise<Uint8Array<ArrayBuffer>> {
  const { buffer, length } = (await copiedTogether([bytes], bytes.length, () => true))!;
  return new Uint8Array(buffer as ArrayBuffer, 0, length);
}
