import { blockUnits } from '../../kit/block-hash.ts';
import { Entries, HEAD } from './entries.ts';

/** No tenure: `Entries` knows nothing of it. */
const NONE = -1;

/**
 * Which worker likely holds how much of a prompt's beginning: per slot the set of block hashes (`kit/block-hash.ts`)
 * that it was sent, forgotten in order of use when there are too many.
 *
 * A slot that knows a block knows all blocks before it. A path is therefore ordered as if its last block had been used
 * first and its first block last, so that whatever has to go, goes from the ends of paths.
 *
 * Entries belong to a tenure, the time between two drops of a slot. So a drop takes no time: the slot's next block begins
 * another tenure, and the memory of the old one is given back one block for each that is added.
 */
export class PrefixIndex {
  readonly #maxBlocks: number;
  readonly #entries: Entries;
  /** The tenure of each slot, `NONE` while it knows nothing since the last drop. */
  readonly #tenures: number[] = [];
  /** Tenures that are over and have blocks still. */
  readonly #ended: number[] = [];
  #endedBlocks = 0;
  readonly #freeTenures: number[] = [];
  #usedTenures = 0;

  /** @param maxBlocks bound over all slots together, 40 to 48 bytes each, of which 8 to 16 are resident at once, the others as they are used */
  constructor(maxBlocks: number) {
    if (!(maxBlocks >= 1)) throw new RangeError('a prefix index has room for at least one block');
    this.#maxBlocks = Math.floor(maxBlocks);
    this.#entries = new Entries(this.#maxBlocks);
  }

  /** Blocks of all slots together. Those of dropped slots don't count: they never cost a live one its place. */
  get size(): number {
    return this.#entries.size - this.#endedBlocks;
  }

  blocks(slot: number): number {
    return this.#entries.count(this.#tenureOf(slot));
  }

  /** Sum of the weights of the slot's blocks. */
  weight(slot: number): number {
    return this.#entries.weight(this.#tenureOf(slot));
  }

  /** How many of the first `count` blocks the slot knows, from the first on. Changes nothing. */
  match(slot: number, hashes: Uint32Array, count = hashes.length): number {
    const entries = this.#entries;
    const tenure = this.#tenureOf(slot);
    // The usual answers are none and all.
    if (count === 0 || entries.count(tenure) === 0 || entries.find(hashes[0]!, tenure) === 0) return 0;
    if (entries.find(hashes[count - 1]!, tenure) !== 0) return count;
    // The slot knows a block only if it knows those before it: so the first unknown one is found by halving.
    let known = 1;
    let unknown = count - 1;
    while (known < unknown) {
      const middle = (known + unknown) >>> 1;
      if (entries.find(hashes[middle]!, tenure) === 0) unknown = middle;
      else known = middle + 1;
    }
    return known;
  }

  /** The slot was sent this path: missing blocks are added, all count as just used. Known ones keep their weight. */
  insert(slot: number, hashes: Uint32Array, count = hashes.length, weightPerUnit = 1): void {
    const entries = this.#entries;
    // Of a path longer than the index the beginning counts.
    const kept = Math.min(count, this.#maxBlocks);
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

  /** A single entry outside of paths, just used; a known one takes the new weight. */
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

  /** For what `add` added: a hole in a path makes matches wrong. */
  delete(slot: number, hash: number): void {
    const known = this.#entries.find(hash, this.#tenureOf(slot));
    if (known !== 0) this.#entries.remove(known);
  }

  /** Forgets the slot's least recently used blocks until the others weigh no more than `maxWeight`. */
  trim(slot: number, maxWeight: number): void {
    const tenure = this.#tenureOf(slot);
    while (this.#entries.count(tenure) > 0 && this.#entries.weight(tenure) > maxWeight) {
      this.#entries.remove(this.#entries.oldestOf(tenure));
    }
  }

  /** The slot's worker left or lost its cache. */
  drop(slot: number): void {
    const tenure = this.#tenureOf(slot);
    if (tenure === NONE) return;
    this.#tenures[slot] = NONE;
    const blocks = this.#entries.count(tenure);
    if (blocks === 0) this.#freeTenures.push(tenure);
    else this.#ended.push(tenure);
    this.#endedBlocks += blocks;
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
    return tenure;
  }

  /** A path is never longer than the bound and is the newest of all, so what goes is not of the path being added. */
  #makeRoom(): void {
    const entries = this.#entries;
    const ended = this.#ended.at(-1);
    if (ended !== undefined) {
      entries.remove(entries.oldestOf(ended));
      this.#endedBlocks--;
      if (entries.count(ended) === 0) this.#freeTenures.push(this.#ended.pop()!);
    } else if (entries.size >= this.#maxBlocks) entries.remove(entries.oldest());
  }
}
