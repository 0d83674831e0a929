/** Buffers for copies, reused as soon as they were written, so that their memory stays in the CPU cache. */
export class CopyPool {
  readonly #bytes: number;
  readonly #maxSpare: number;
  readonly #spare: Buffer[] = [];

  /** @param bytes size of a buffer; larger copies get their own, which is not kept */
  constructor(bytes: number, maxSpare: number) {
    this.#bytes = bytes;
    this.#maxSpare = maxSpare;
  }

  /** @returns a buffer that begins with a copy of `bytes[start, end)`, to be given back after use */
  take(bytes: Uint8Array, start: number, end: number): Buffer {
    const size = end - start;
    const copy =
      size > this.#bytes ? Buffer.allocUnsafeSlow(size) : (this.#spare.pop() ?? Buffer.allocUnsafeSlow(this.#bytes));
    copy.set(bytes.subarray(start, end));
    return copy;
  }

  giveBack(copy: Buffer): void {
    if (copy.length === this.#bytes && this.#spare.length < this.#maxSpare) this.#spare.push(copy);
  }
}
