/**
 * Paged KV memory with a prefix cache, as vLLM's block pool: a block belongs to the sequences that hold it, a full
 * block is also found by the hash of all tokens up to its end, and a block without a holder can be found until it is
 * evicted as the least recently used one. No I/O, no time: the order of use is the order of release.
 */

const none = -1;

export class KvCache {
  readonly blockCount: number;
  readonly #holders: Int32Array;
  /** The prefix key of a published block; NaN otherwise. */
  readonly #keys: Float64Array;
  readonly #byKey = new Map<number, number>();
  // Free list: blocks without a holder, least recently used first. Slot `blockCount` is head and tail of the ring.
  readonly #next: Int32Array;
  readonly #previous: Int32Array;
  #freeCount: number;

  constructor(blockCount: number) {
    this.blockCount = blockCount;
    this.#holders = new Int32Array(blockCount);
    this.#keys = new Float64Array(blockCount).fill(Number.NaN);
    this.#next = new Int32Array(blockCount + 1);
    this.#previous = new Int32Array(blockCount + 1);
    for (let i = 0; i <= blockCount; i += 1) {
      this.#next[i] = (i + 1) % (blockCount + 1);
      this.#previous[i] = (i + blockCount) % (blockCount + 1);
    }
    this.#freeCount = blockCount;
  }

  /** Blocks without a holder: empty ones and cached ones that may be evicted. */
  get freeCount(): number {
    return this.#freeCount;
  }

  holders(block: number): number {
    return this.#holders[block] ?? 0;
  }

  /** Blocks of the longest cached prefix of `keys`. This call holds none of them. */
  match(keys: ArrayLike<number>, limit: number): number[] {
    const blocks: number[] = [];
    for (let i = 0; i < limit; i += 1) {
      const block = this.#byKey.get(keys[i]!);
      if (block === undefined) break;
      blocks.push(block);
    }
    return blocks;
  }

  /** How many of `blocks` are on the free list, so that `hold` would take them from it. */
  countFree(blocks: readonly number[]): number {
    let count = 0;
    for (const block of blocks) if (this.#holders[block] === 0) count += 1;
    return count;
  }

  hold(blocks: readonly number[]): void {
    for (const block of blocks) {
      if (this.#holders[block] === 0) this.#unlink(block);
      this.#holders[block]! += 1;
    }
  }

  /**
   * A block for new tokens, for which the least recently used cached one is evicted; undefined if every block is held.
   */
  allocate(): number | undefined {
    const block = this.#next[this.blockCount]!;
    if (block === this.blockCount) return undefined;
    this.#unlink(block);
    this.#forget(block);
    this.#holders[block] = 1;
    return block;
  }

  /** Makes a full block findable. A known key keeps its first block, and the copy stays private. */
  publish(block: number, key: number): void {
    if (this.#byKey.has(key)) return;
    this.#forget(block);
    this.#byKey.set(key, block);
    this.#keys[block] = key;
  }

  /** Ends one hold on each block, last block first, so that a prefix outlives its continuations. */
  release(blocks: readonly number[]): void {
    for (let i = blocks.length - 1; i >= 0; i -= 1) {
      const block = blocks[i]!;
      if (this.#holders[block]! <= 0) throw new Error(`block ${block} released more often than held`);
      this.#holders[block]! -= 1;
      if (this.#holders[block] === 0) this.#append(block);
    }
  }

  /** Evicts every prefix. Held blocks stay with their holders. */
  flush(): void {
    this.#byKey.clear();
    this.#keys.fill(Number.NaN);
  }

  #forget(block: number): void {
    const key = this.#keys[block]!;
    if (Number.isNaN(key)) return;
    this.#byKey.delete(key);
    this.#keys[block] = Number.NaN;
  }

  #unlink(block: number): void {
    const next = this.#next[block]!;
    const previous = this.#previous[block]!;
    this.#next[previous] = next;
    this.#previous[next] = previous;
    this.#next[block] = none;
    this.#previous[block] = none;
    this.#freeCount -= 1;
  }

  #append(block: number): void {
    const end = this.blockCount;
    const last = this.#previous[end]!;
    this.#next[last] = block;
    this.#previous[block] = last;
    this.#next[block] = end;
    this.#previous[end] = block;
    this.#freeCount += 1;
  }
}
