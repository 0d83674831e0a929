/**
 * Memory in slabs of one size. It is shared memory, although no thread shares it, because V8 collects its whole heap whenever the memory
 * of other buffers has grown by 64 MB. So this pool has its own limit.
 */
export class SlabPool {
  readonly slabBytes: number;
  readonly #maxSlabs: number;
  /** Weak: V8's next full collection frees unused slabs. */
  readonly #spare: WeakRef<SharedArrayBuffer>[] = [];
  /** Slabs in memory, including dropped ones that were not given back. */
  #count = 0;
  readonly #collected = new FinalizationRegistry<null>(() => {
    this.#count--;
  });

  constructor(slabBytes: number, maxSlabs: number) {
    this.slabBytes = slabBytes;
    this.#maxSlabs = maxSlabs;
  }

  /** @returns null at the limit */
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

  giveBack(slab: Buffer): void {
    this.#spare.push(new WeakRef(slab.buffer as unknown as SharedArrayBuffer));
  }
}
