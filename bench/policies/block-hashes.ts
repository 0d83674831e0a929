// Chained hashes of the blocks of a prompt: equal prefixes have equal hashes, and a hash names all that lies before it.
import type { Request, Segment } from './workload.ts';

const fineTokens = 16;
const fineUntil = 1024;
const coarseTokens = 128;

/** Whole blocks in so many tokens: blocks of 16 for the first 1,024, of 128 from there on. */
export function wholeBlocks(tokens: number): number {
  if (tokens <= fineUntil) return Math.floor(tokens / fineTokens);
  return fineUntil / fineTokens + Math.floor((tokens - fineUntil) / coarseTokens);
}

function mix(hash: number, value: number): number {
  let word = Math.imul(value, 0xcc9e2d51);
  word = Math.imul((word << 15) | (word >>> 17), 0x1b873593);
  const mixed = hash ^ word;
  return (Math.imul((mixed << 13) | (mixed >>> 19), 5) + 0xe6546b64) | 0;
}

function finish(hash: number): number {
  let mixed = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/** The block hashes of one session. Its prompts only grow, so each block is hashed once. */
export class BlockChain {
  #hashes = new Uint32Array(64);
  #count = 0;
  // Where the next block starts.
  #segment = 0;
  #offset = 0;

  /** @returns a view that stays valid, one hash per whole block of the first `tokens` tokens */
  upTo(segments: readonly Segment[], tokens: number): Uint32Array {
    const count = wholeBlocks(tokens);
    if (count > this.#hashes.length) {
      const grown = new Uint32Array(Math.max(count, 2 * this.#hashes.length));
      grown.set(this.#hashes);
      this.#hashes = grown;
    }
    while (this.#count < count) this.#addBlock(segments);
    return this.#hashes.subarray(0, count);
  }

  #addBlock(segments: readonly Segment[]): void {
    let hash = this.#count === 0 ? 0 : this.#hashes[this.#count - 1]!;
    let left = this.#count < fineUntil / fineTokens ? fineTokens : coarseTokens;
    while (left > 0) {
      const segment = segments[this.#segment]!;
      hash = mix(mix(hash, segment.hash), this.#offset);
      const taken = Math.min(left, segment.tokens - this.#offset);
      left -= taken;
      this.#offset += taken;
      if (this.#offset === segment.tokens) {
        this.#segment += 1;
        this.#offset = 0;
      }
    }
    this.#hashes[this.#count++] = finish(hash);
  }
}

/** One hash per whole block of the request's prompt; costs only the blocks its session has not hashed before. */
export function blockHashes(request: Pick<Request, 'blocks' | 'segments' | 'promptTokens'>): Uint32Array {
  return request.blocks.upTo(request.segments, request.promptTokens);
}
