import { blockUnits } from '../../kit/block-hash.ts';
import { Entries, HEAD } from './entries.ts';

const NONE = -1;
/** Slots of one block that `holders` shows at a time. */
export const MAX_HOLDERS = 32;

/**
 * Which worker likely has how much of a prompt in its cache: per slot, the set of block hashes (`kit/block-hash.ts`)
 * that the worker was sent. The least recently used blocks are forgotten beyond a limit.
 *
 * A slot with a block has all blocks before it. So the blocks of a path are ordered as if the last one had been used
 * first, and eviction shortens paths from their ends.
 *
 * Entries belong to a tenure: the time between two drops of a slot. A drop is O(1): the slot begins a new tenure, and
 * for each block that is added later one block of an old tenure is freed.
 */
export class PrefixIndex {
  readonly #maxBlocks: number;
  readonly #entries: Entries;
  /** The tenure of each slot; `NONE` if the slot has no block since the last drop. */
  readonly #tenures: number[] = [];
  /** Tenures that have ended and still have blocks. */
  readonly #ended: number[] = [];
  #endedBlocks = 0;
  /** The slot of each tenure; `NONE` if the tenure has ended. */
  readonly #slots: number[] = [];
  readonly #freeTenures: number[] = [];
  #usedTenures = 0;
  /** The slots that `holders` has found. */
  readonly #found: number[] = [];

  /**
   * @param maxBlocks limit for all slots in total. A block takes 48 to 56 bytes, of which 8 to 16 are resident from the
   * start.
   */
  constructor(maxBlocks: number) {
    if (!(maxBlocks >= 1)) throw new RangeError('a prefix index has room for at least one block');
    this.#maxBlocks = Math.floor(maxBlocks);
    this.#entries = new Entries(this.#maxBlocks);
  }

  /** Blocks of all slots. Those of ended tenures do not count, because they are evicted before any live block. */
  get size(): number {
    return this.#entries.size - this.#endedBlocks;
  }

  /** The memory that its blocks have used so far: it is never returned. */
  get bytes(): number {
    return this.#entries.bytes;
  }

  blocks(slot: number): number {
    return this.#entries.count(this.#tenureOf(slot));
  }

  /** The sum of the weights of the slot's blocks. */
  weight(slot: number): number {
    return this.#entries.weight(this.#tenureOf(slot));
  }

  /** How many of these blocks the slot has, from the first one on. Changes nothing. */
  match(slot: number, hashes: Uint32Array): number {
    const count = hashes.length;
    const entries = this.#entries;
    const tenure = this.#tenureOf(slot);
    // Most slots have either no block of a prompt or all of them.
    if (count === 0 || entries.count(tenure) === 0 || entries.find(hashes[0]!, tenure) === 0) return 0;
    if (entries.find(hashes[count - 1]!, tenure) !== 0) return count;
    // The slot has a block only if it has those before it, so a binary search finds the first missing one.
    let known = 1;
    let unknown = count - 1;
    while (known < unknown) {
      const middle = (known + unknown) >>> 1;
      if (entries.find(hashes[middle]!, tenure) === 0) unknown = middle;
      else known = middle + 1;
    }
    return known;
  }

  /**
   * The slots that have the most of these blocks: those with the most come first, and of those with the same
   * part the latest. A part that more than `MAX_HOLDERS` slots have shows some of them, the next time others.
   *
   * @param wanted the search ends when so many were counted
   * @param visit is given the number of blocks, and returns whether the slot counts
   */
  holders(hashes: Uint32Array, wanted: number, visit: (slot: number, blocks: number) => boolean): void {
    const found = this.#found;
    found.length = 0;
    let counted = 0;
    for (let end = hashes.length; end > 0 && counted < wanted && found.length < MAX_HOLDERS;) {
      // All slots with a block have those before it, so a binary search finds the last one that further slots have.
      let known = 0;
      while (known < end) {
        const middle = (known + end + 1) >>> 1;
        if (this.#countHolders(hashes[middle - 1]!, found.length + 1) > found.length) known = middle;
        else end = middle - 1;
      }
      if (known === 0) return;
      const before = found.length;
      this.#collect(hashes[known - 1]!);
      for (let i = before; i < found.length; i++) if (visit(found[i]!, known)) counted++;
      end = known - 1;
    }
  }

  /** Adds the missing blocks of a path and makes all of it the most recently used. Known blocks keep their weight. */
  insert(slot: number, hashes: Uint32Array, weightPerUnit = 1): void {
    const entries = this.#entries;
    // Of a path that exceeds the index, only the beginning is kept.
    const kept = Math.min(hashes.length, this.#maxBlocks);
    if (kept === 0) return;
    const tenure = this.#beginTenure(slot);
    let before = HEAD;
    for (let i = 0; i < kept;) {
      const hash = hashes[i]!;
      const known = entries.find(hash, tenure);
      if (known === 0) {
        this.#makeRoom();
        before = entries.add(hash, tenure, blockUnits(i) * weightPerUnit, before);
        i++;
      } else {
        i += entries.moveRun(known, hashes, i, kept, before);
        before = entries.lastMoved;
      }
    }
  }

  /** Adds a single entry outside of paths, or sets the weight of a known one. It becomes the most recently used. */
  add(slot: number, hash: number, weight: number): void {
    const tenure = this.#beginTenure(slot);
    const known = this.#entries.find(hash, tenure);
    if (known === 0) {
      this.#makeRoom();
      this.#entries.add(hash, tenure, weight, HEAD);
    } else {
      this.#entries.reweigh(known, weight);
      this.#entries.move(known, HEAD);
    }
  }

  has(slot: number, hash: number): boolean {
    return this.#entries.find(hash, this.#tenureOf(slot)) !== 0;
  }

  /** Only for entries of `add`: a hole in a path would make matches wrong. */
  delete(slot: number, hash: number): void {
    const known = this.#entries.find(hash, this.#tenureOf(slot));
    if (known !== 0) this.#entries.remove(known);
  }

  /** Evicts the slot's least recently used blocks until the others weigh no more than `maxWeight`. */
  trim(slot: number, maxWeight: number): void {
    const tenure = this.#tenureOf(slot);
    while (this.#entries.count(tenure) > 0 && this.#entries.weight(tenure) > maxWeight) {
      this.#entries.remove(this.#entries.oldestOf(tenure));
    }
  }

  /** The worker was removed or lost its cache. */
  drop(slot: number): void {
    const tenure = this.#tenureOf(slot);
    if (tenure === NONE) return;
    this.#tenures[slot] = NONE;
    this.#slots[tenure] = NONE;
    const blocks = this.#entries.count(tenure);
    if (blocks === 0) this.#freeTenures.push(tenure);
    else this.#ended.push(tenure);
    this.#endedBlocks += blocks;
  }

  /** How many slots have a block; counts up to `most`. Removes blocks of ended tenures, which no longer count. */
  #countHolders(hash: number, most: number): number {
    const entries = this.#entries;
    let count = 0;
    for (let entry = entries.first(hash); entry !== 0 && count < most;) {
      const next = entries.next(entry);
      if (this.#slots[entries.slotOf(entry)] !== NONE) count++;
      else {
        entries.remove(entry);
        this.#endedBlocks--;
      }
      entry = next;
    }
    return count;
  }

  /** Adds the slots of a block to `#found`. */
  #collect(hash: number): void {
    const entries = this.#entries;
    const first = entries.first(hash);
    let last = first;
    let count = 0;
    for (let entry = first; entry !== 0; entry = entries.next(entry)) {
      if (++count > MAX_HOLDERS) return entries.rotate(first, last);
      last = entry;
      const slot = this.#slots[entries.slotOf(entry)]!;
      if (slot !== NONE && !this.#found.includes(slot)) this.#found.push(slot);
    }
  }

  #tenureOf(slot: number): number {
    return this.#tenures[slot] ?? NONE;
  }

  #beginTenure(slot: number): number {
    let tenure = this.#tenureOf(slot);
    if (tenure !== NONE) return tenure;
    tenure = this.#freeTenures.pop() ?? this.#usedTenures++;
    while (this.#tenures.length <= slot) this.#tenures.push(NONE);
    this.#tenures[slot] = tenure;
    this.#slots[tenure] = slot;
    return tenure;
  }

  /** The path being added is not longer than the limit and is used most recently, so none of its blocks is evicted. */
  #makeRoom(): void {
    const entries = this.#entries;
    let ended = this.#ended.at(-1);
    while (ended !== undefined && entries.count(ended) === 0) {
      this.#freeTenures.push(this.#ended.pop()!);
      ended = this.#ended.at(-1);
    }
    if (ended !== undefined) {
      entries.remove(entries.oldestOf(ended));
      this.#endedBlocks--;
    } else if (entries.size >= this.#maxBlocks) entries.remove(entries.oldest());
  }
}
