/** Blocks grow with what came before, up to this size: a long answer has few of them. */
const MAX_BLOCK_BYTES = 1_048_576;

/** Copies of bytes that come piece by piece, in blocks that can be transferred to a thread: each has its memory to itself. */
export class Gathered {
  bytes = 0;
  readonly #blocks: Buffer[] = [];
  /** Bytes of the last block that are not used yet. */
  #free = 0;

  add(bytes: Buffer, start: number, end: number): void {
    for (let at = start; at < end;) {
      if (this.#free === 0) {
        this.#free = Math.min(Math.max(end - at, this.bytes), MAX_BLOCK_BYTES);
        this.#blocks.push(Buffer.allocUnsafeSlow(this.#free));
      }
      const block = this.#blocks.at(-1)!;
      const count = bytes.copy(block, block.length - this.#free, at, end);
      this.#free -= count;
      this.bytes += count;
      at += count;
    }
  }

  blocks(): Buffer[] {
    const last = this.#blocks.length - 1;
    return this.#blocks.map((block, i) => (i === last ? block.subarray(0, block.length - this.#free) : block));
  }
}
