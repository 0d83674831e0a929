/** Buffers to copy into, used again as soon as what they held has been written: their memory stays in the cache. */
export class CopyPool {
  readonly #bytes: number;
  readonly #maxSpare: number;
  readonly #spare: Buffer[] = [];

  /** @param bytes size of a buffer; larger parts get one of their own, which is not kept */
  constructor(bytes: number, maxSpare: number) {
    this.#bytes = bytes;
    this.#maxSpare = maxSpare;
  }

  /** @returns a copy of `bytes[start, end)`, to be given back when nobody reads it any more. */
  take(bytes: Uint8Array, start: number, end: number): Buffer {
    const size = end - start;
    const whole =
      size > this.#bytes ? Buffer.allocUnsafeSlow(size) : (this.#spare.pop() ?? Buffer.allocUnsafeSlow(this.#bytes));
    const copy = size === whole.length ? whole : whole.subarray(0, size);
    copy.set(bytes.subarray(start, end));
    return copy;
  }

  giveBack(copy: Buffer): void {
    if (copy.buffer.byteLength !== this.#bytes || this.#spare.length === this.#maxSpare) return;
    this.#spare.push(copy.length === this.#bytes ? copy : Buffer.from(copy.buffer));
  }
}
