import type { TokenChain } from './token-chain.ts';
import { U64Table } from './u64-table.ts';

/** The kinds of memory that hold cached blocks, best first, by the engines' names in lower case. */
const media = [
  ['gpu'],
  ['cpu', 'cpu_pinned', 'host'],
  ['external', 'remote', 'shared'],
  ['disk', 'storage', 'fs', 'obj', 'nvme', 'ssd'],
];
const EXTERNAL = 2;

/**
 * The weight of a cached token in each of them, because a block outside the GPU must be fetched first. The values are
 * vllm-router's: host 0.8, external 0.6, disk 0.3.
 */
export const tierCredits = [1, 0.8, 0.6, 0.3] as const;

/** @returns the index in `tierCredits`; an unknown memory counts least, none means the GPU */
export function tierOf(medium: string | null, isRemote: boolean): number {
  const name = (medium ?? 'gpu').toLowerCase();
  const tier = media.findIndex((names) => names.includes(name));
  const known = tier < 0 ? media.length - 1 : tier;
  return isRemote ? Math.max(known, EXTERNAL) : known;
}

/** Counts of four tiers in one 32-bit value, 8 bits each; a count stays at 255. */
const countAt = (counts: number, tier: number): number => (counts >>> (tier * 8)) & 0xff;
const one = (tier: number): number => 1 << (tier * 8);

// Columns of a row in `handles` and in `hashes`.
const COUNTS = 2;
const HASH_LO = 3;
const HASH_HI = 4;

/**
 * The blocks in one engine's cache. `handles`: the engine's name of a block → its copies per tier, and the hash of its
 * tokens. `hashes`: hash of tokens → handles with this hash per tier.
 *
 * Copies are counted because engines report each one: vLLM stores and removes the same handle twice if two requests
 * computed the same block at once.
 */
export class SlotBlocks {
  /** Tokens per block; 0: not known yet. */
  blockSize = 0;
  /** The cache group that is followed; null for any. */
  group: number | null = null;
  /** How well that group shows what is cached, see `KvIndex`. */
  groupRank = -1;
  /** Blocks that could not be placed, because their parent or their tokens are unknown. */
  unplaced = 0;
  readonly #handles = new U64Table(3);
  readonly #hashes = new U64Table(1);

  /** Distinct blocks. */
  get size(): number {
    return this.#hashes.size;
  }

  get bytes(): number {
    return this.#handles.cells.byteLength + this.#hashes.cells.byteLength;
  }

  /** Sets `chain` to the hash of the handle's block. @returns false if the handle is unknown */
  locate(lo: number, hi: number, chain: TokenChain): boolean {
    const at = this.#handles.find(lo, hi);
    if (at < 0) return false;
    chain.lo = this.#handles.cells[at + HASH_LO]!;
    chain.hi = this.#handles.cells[at + HASH_HI]!;
    return true;
  }

  /** Adds a copy of the block whose hash is in `chain`. */
  add(lo: number, hi: number, tier: number, chain: TokenChain): void {
    const handles = this.#handles;
    let at = handles.find(lo, hi);
    if (at >= 0 && (handles.cells[at + HASH_LO] !== chain.lo || handles.cells[at + HASH_HI] !== chain.hi)) {
      this.#forget(at);
      at = -1;
    }
    if (at < 0) {
      at = handles.insert(lo, hi);
      handles.cells[at + HASH_LO] = chain.lo;
      handles.cells[at + HASH_HI] = chain.hi;
    }
    const counts = handles.cells[at + COUNTS]!;
    const count = countAt(counts, tier);
    if (count < 0xff) handles.cells[at + COUNTS] = counts + one(tier);
    if (count === 0) this.#addHash(tier, chain.lo, chain.hi);
  }

  /** Removes a copy. A block that is not found was never placed. */
  remove(lo: number, hi: number, tier: number): void {
    const handles = this.#handles;
    const at = handles.find(lo, hi);
    if (at < 0) return;
    const counts = handles.cells[at + COUNTS]!;
    const count = countAt(counts, tier);
    if (count === 0) return;
    if (count === 1) this.#removeHash(tier, handles.cells[at + HASH_LO]!, handles.cells[at + HASH_HI]!);
    if (counts === one(tier)) handles.remove(at);
    else handles.cells[at + COUNTS] = counts - one(tier);
  }

  /** The weight of a token of the block with this hash; 0 if it is not cached. */
  credit(lo: number, hi: number): number {
    const at = this.#hashes.find(lo, hi);
    if (at < 0) return 0;
    const counts = this.#hashes.cells[at + COUNTS]!;
    for (let tier = 0; ; tier++) if (countAt(counts, tier) > 0) return tierCredits[tier]!;
  }

  clear(): void {
    this.#handles.clear();
    this.#hashes.clear();
  }

  #forget(at: number): void {
    const { cells } = this.#handles;
    const counts = cells[at + COUNTS]!;
    for (let tier = 0; tier < tierCredits.length; tier++) {
      if (countAt(counts, tier) > 0) this.#removeHash(tier, cells[at + HASH_LO]!, cells[at + HASH_HI]!);
    }
    this.#handles.remove(at);
  }

  #addHash(tier: number, lo: number, hi: number): void {
    const hashes = this.#hashes;
    let at = hashes.find(lo, hi);
    if (at < 0) at = hashes.insert(lo, hi);
    const counts = hashes.cells[at + COUNTS]!;
    if (countAt(counts, tier) < 0xff) hashes.cells[at + COUNTS] = counts + one(tier);
  }

  #removeHash(tier: number, lo: number, hi: number): void {
    const hashes = this.#hashes;
    const at = hashes.find(lo, hi);
    if (at < 0) return;
    const counts = hashes.cells[at + COUNTS]!;
    if (countAt(counts, tier) === 0) return;
    if (counts === one(tier)) hashes.remove(at);
    else hashes.cells[at + COUNTS] = counts - one(tier);
  }
}
