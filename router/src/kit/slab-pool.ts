/**
 * Memory in slabs of one size, for what would otherwise lie in many buffers. It is shared memory, although nobody shares it:
 * V8 counts what other buffers hold and collects its whole heap whenever that has grown by 64 MB, garbage or not. This it
 * does not count, so there is a maximum here.
 */
export class SlabPool {
  readonly slabBytes: number;
  readonly #maxSlabs: number;
  /** Held weakly: what is not needed for long goes back to the system with V8's next full collection. */
  readonly #spare: WeakRef<SharedArrayBuffer>[] = [];
  /** Slabs that are in memory, also those that were never given back and are garbage. */
  #count = 0;
  readonly #collected = new FinalizationRegistry<null>(() => {
    this.#count--;
  });

  constructor(slabBytes: number, maxSlabs: number) {
    this.slabBytes = slabBytes;
    this.#maxSlabs = maxSlabs;
  }

  /** @returns null when there is no more. */
  take(): Buffer | null {
    for (let spare = this.#spare.pop(); spare !== undefined; spare = this.#spare.pop()) {
      const memory = spare.deref();
      if (memory !== undefined) return Buffer.from(memory);
    }
    if (this.#count === this.#maxSlabs) return null;
    this.#count++;
    const memory = new SharedArrayBuffer(this.slabBytes);
    this.#collected.register(memory, null);
    return Buffer.from(memory);
  }

  /** Only what nobody reads any more: it is overwritten. */
  giveBack(slab: Buffer): void {
    this.#spare.push(new WeakRef(slab.buffer as unknown as SharedArrayBuffer));
  }
}
