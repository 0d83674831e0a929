import type { CopyPool } from '../../kit/copy-pool.ts';

/** What is less lies in the pieces that it came in. */
const SMALL_BYTES = 65_536;
/** Beyond that it is gathered in memory of this size, which can be given away to a thread: joining megabytes takes too long. */
const BLOCK_BYTES = 1_048_576;

/** Copies of bytes that come piece by piece, in their order. */
export class Gathered {
  bytes = 0;
  readonly #pool: CopyPool | null;
  readonly #parts: Buffer[] = [];
  #pooled: Buffer[] = [];
  readonly #blocks: Buffer[] = [];
  #room = 0;

  /** @param pool for pieces that are not kept for long */
  constructor(pool: CopyPool | null = null) {
    this.#pool = pool;
  }

  add(bytes: Buffer, start: number, end: number): void {
    if (this.bytes <= SMALL_BYTES) this.#parts.push(this.#copy(bytes, start, end));
    else this.#addToBlock(bytes, start, end);
    this.bytes += end - start;
  }

  #copy(bytes: Buffer, start: number, end: number): Buffer {
    if (this.#pool === null) return ownCopy(bytes, start, end);
    const copy = this.#pool.take(bytes, start, end);
    this.#pooled.push(copy);
    return copy.subarray(0, end - start);
  }

  /** All of it: one piece, or several of which each has its memory to itself. */
  pieces(): Buffer[] {
    if (this.#blocks.length === 0) return this.#parts.length <= 1 ? [...this.#parts] : [joinedAlone(this.#parts)];
    const blocks = this.#blocks.map((block, i) =>
      i === this.#blocks.length - 1 ? block.subarray(0, BLOCK_BYTES - this.#room) : block,
    );
    return [joinedAlone(this.#parts), ...blocks];
  }

  /** Nobody reads any more what is in it. */
  free(): void {
    for (const copy of this.#pooled) this.#pool?.giveBack(copy);
    this.#pooled = [];
  }

  #addToBlock(bytes: Buffer, start: number, end: number): void {
    for (let at = start; at < end;) {
      if (this.#room === 0) {
        this.#blocks.push(Buffer.allocUnsafeSlow(BLOCK_BYTES));
        this.#room = BLOCK_BYTES;
      }
      const count = Math.min(this.#room, end - at);
      bytes.copy(this.#blocks.at(-1)!, BLOCK_BYTES - this.#room, at, at + count);
      this.#room -= count;
      at += count;
    }
  }
}

/** In memory of its own: what is kept would keep all that is beside it. */
export function ownCopy(bytes: Buffer, start: number, end: number): Buffer {
  const copy = Buffer.allocUnsafeSlow(end - start);
  bytes.copy(copy, 0, start, end);
  return copy;
}

/** One piece of several, in memory of its own. */
export function joinedAlone(pieces: readonly Buffer[]): Buffer {
  const joined = Buffer.allocUnsafeSlow(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) at += piece.copy(joined, at);
  return joined;
}
