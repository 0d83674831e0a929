import type { BlocksRemoved, BlocksStored, KvEvent } from '../../engines/kv-events.ts';
import { SlotBlocks, tierOf } from './slot-blocks.ts';
import { isMadeSalt } from '../../engines/dialects/request-fields.ts';
import { type Root, TokenChain, baseRoot, rootOf } from './token-chain.ts';

/** Kinds of layers that read only a part of the prompt, so their blocks do not show how much must be computed. */
const partialKinds = new Set([
  'sliding_window',
  'sliding_window_mla',
  'mamba',
  'chunked_local_attention',
  'encoder_only_attention',
  'cross_attention',
]);

/** The cache group with whole prompts is followed: a known kind first, then an unknown one. */
const rankOf = (kind: string | null): number => (kind === null ? 1 : partialKinds.has(kind) ? 0 : 2);

/**
 * In place of the salts that the router makes: which of them a request gets is known when it is sent, so its prompt is compared with the
 * blocks of all of them.
 */
const ANY_MADE = '';

/**
 * The prefix caches of all engines as they report them: per slot, the blocks by a hash of their tokens and all tokens
 * before them. The engines' own hashes cannot be computed here, so they are translated when an event arrives. It holds
 * what the engines hold, at 46 to 92 bytes per block.
 */
export class KvIndex {
  readonly #slots: (SlotBlocks | undefined)[] = [];
  readonly #chain = new TokenChain();
  /** For the prompt being matched: the hashes of its blocks as `lo, hi`, and how many are computed. */
  #hashes = new Uint32Array(256);
  #hashed = 0;
  /** Some engine has blocks with a salt that the router made. */
  #hasMade = false;
  #found = new Float64Array(0);

  apply(slot: number, event: KvEvent): void {
    if (event.type === 'stored') this.stored(slot, event);
    else if (event.type === 'removed') this.removed(slot, event);
    else this.cleared(slot);
  }

  stored(slot: number, event: BlocksStored): void {
    const held = (this.#slots[slot] ??= new SlotBlocks());
    const { blocks, tokenIds, blockSize, extraKeys } = event;
    if (!follows(held, event)) return;
    const chain = this.#chain;
    const words = new Uint32Array(blocks.buffer, blocks.byteOffset, blocks.length * 2);
    const tier = tierOf(event.medium, event.isRemote);
    if (tokenIds.length === 0) {
      // A copy of a block that is known by its handle.
      for (let i = 0; i < words.length; i += 2) {
        if (held.locate(words[i]!, words[i + 1]!, chain)) held.add(words[i]!, words[i + 1]!, tier, chain);
        else held.unplaced++;
      }
      return;
    }
    if (!fits(held, event) || !this.#begin(held, event)) {
      held.unplaced += blocks.length;
      return;
    }
    for (let i = 0; i < blocks.length; i++) {
      chain.next(tokenIds, i * blockSize, (i + 1) * blockSize);
      const extra = extraKeys?.[i];
      if (extra != null) chain.mix(extra);
      held.add(words[2 * i]!, words[2 * i + 1]!, tier, chain);
    }
  }

  removed(slot: number, event: BlocksRemoved): void {
    const held = this.#slots[slot];
    if (held === undefined) return;
    if (event.group !== null && held.group !== null && event.group !== held.group) return;
    const { blocks } = event;
    const words = new Uint32Array(blocks.buffer, blocks.byteOffset, blocks.length * 2);
    const tier = tierOf(event.medium, event.isRemote);
    for (let i = 0; i < words.length; i += 2) held.remove(words[i]!, words[i + 1]!, tier);
  }

  /** The engine emptied its cache. */
  cleared(slot: number): void {
    this.#slots[slot]?.clear();
  }

  /** The worker was removed, or events were missed. */
  drop(slot: number): void {
    this.#slots[slot] = undefined;
  }

  /** `matchAll` for a prompt with this adapter and the client's salt, to which the router may add. */
  matchPrompt(
    slots: ArrayLike<number>,
    tokenIds: Int32Array,
    out: Float64Array,
    lora: string | null,
    salt: string | null,
  ): void {
    this.matchAll(slots, tokenIds, out, rootOf(lora, salt));
    if (!this.#hasMade) return;
    if (this.#found.length < slots.length) this.#found = new Float64Array(slots.length);
    this.matchAll(slots, tokenIds, this.#found, rootOf(lora, ANY_MADE));
    for (let i = 0; i < slots.length; i++) out[i] = Math.max(out[i]!, this.#found[i]!);
  }

  /**
   * Sets in `out`, for each slot, how many of the first tokens are cached there, in whole blocks, weighted by `tierCredits`. Each block is hashed
   * once, and only as far as any slot matches.
   */
  matchAll(slots: ArrayLike<number>, tokenIds: Int32Array, out: Float64Array, root: Root = baseRoot): void {
    out.fill(0, 0, slots.length);
    let doneSize = 0;
    for (;;) {
      // One round per block size, the smallest first.
      let blockSize = Number.POSITIVE_INFINITY;
      for (let i = 0; i < slots.length; i++) {
        const held = this.#slots[slots[i]!];
        if (held !== undefined && held.size > 0 && held.blockSize > doneSize && held.blockSize < blockSize) {
          blockSize = held.blockSize;
        }
      }
      if (blockSize > tokenIds.length) return;
      this.#chain.start(root);
      this.#hashed = 0;
      for (let i = 0; i < slots.length; i++) {
        const held = this.#slots[slots[i]!];
        if (held?.blockSize === blockSize) out[i] = this.#walk(held, tokenIds);
      }
      doneSize = blockSize;
    }
  }

  /** Distinct blocks of a slot, and how many could not be placed because their parent is unknown. */
  stateOf(slot: number): { blocks: number; unplaced: number; blockSize: number; bytes: number } {
    const held = this.#slots[slot];
    if (held === undefined) return { blocks: 0, unplaced: 0, blockSize: 0, bytes: 0 };
    return { blocks: held.size, unplaced: held.unplaced, blockSize: held.blockSize, bytes: held.bytes };
  }

  /** From the first block on, as far as the slot has it. Hashes computed for another slot are reused. */
  #walk(held: SlotBlocks, tokenIds: Int32Array): number {
    const { blockSize } = held;
    const blocks = Math.floor(tokenIds.length / blockSize);
    let matched = 0;
    for (let i = 0; i < blocks; i++) {
      if (i === this.#hashed) this.#hashNext(tokenIds, blockSize);
      const credit = held.credit(this.#hashes[2 * i]!, this.#hashes[2 * i + 1]!);
      if (credit === 0) break;
      matched += credit * blockSize;
    }
    return matched;
  }

  #hashNext(tokenIds: Int32Array, blockSize: number): void {
    const chain = this.#chain;
    const i = this.#hashed++;
    chain.next(tokenIds, i * blockSize, (i + 1) * blockSize);
    if (2 * i === this.#hashes.length) {
      const larger = new Uint32Array(this.#hashes.length * 2);
      larger.set(this.#hashes);
      this.#hashes = larger;
    }
    this.#hashes[2 * i] = chain.lo;
    this.#hashes[2 * i + 1] = chain.hi;
  }

  /** Sets the chain to where the event's first block continues. @returns false if that place is unknown */
  #begin(held: SlotBlocks, { parent, lora, salt }: BlocksStored): boolean {
    if (parent === null) {
      const isMade = salt !== null && isMadeSalt(salt);
      this.#hasMade ||= isMade;
      this.#chain.start(rootOf(lora, isMade ? ANY_MADE : salt));
      return true;
    }
    const lo = Number(parent & 0xffff_ffffn);
    return held.locate(lo, Number(parent >> 32n), this.#chain);
  }
}

/** Whether the event is of the cache group that is followed here, or of a better one, which is followed from now on. */
function follows(held: SlotBlocks, { group, groupKind, tokenIds }: BlocksStored): boolean {
  if (group === null) return true;
  // Without tokens the event has no kind either, so the group to follow stays unknown.
  const rank = tokenIds.length === 0 ? -1 : rankOf(groupKind);
  if (rank > held.groupRank && group !== held.group) {
    if (held.group !== null) held.clear();
    held.group = group;
  }
  if (group === held.group) held.groupRank = Math.max(rank, held.groupRank);
  return held.group === null || group === held.group;
}

/** Whether the event's blocks are of the size of all others here: an engine may tell of parts of blocks too. */
function fits(held: SlotBlocks, { blocks, tokenIds, blockSize }: BlocksStored): boolean {
  if (blockSize === 0 || tokenIds.length !== blocks.length * blockSize) return false;
  if (blockSize > held.blockSize) {
    held.clear();
    held.blockSize = blockSize;
  }
  return blockSize === held.blockSize;
}
