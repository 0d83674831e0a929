/** The start of a chain: prompts with different adapters or salts share no block. */
export interface Root {
  readonly lo: number;
  readonly hi: number;
}

/**
 * The 64-bit hash of a block of tokens and all blocks before it: two lanes of murmur3 with different constants, mixed
 * at the end of every block. Not cryptographic: a collision only causes a wrong estimate of what is cached.
 */
export class TokenChain {
  lo = 0;
  hi = 0;

  start(root: Root): void {
    this.lo = root.lo;
    this.hi = root.hi;
  }

  /** Continues with the block `tokenIds[from, to)`. */
  next(tokenIds: Int32Array, from: number, to: number): void {
    let a = this.lo;
    let b = this.hi;
    for (let i = from; i < to; i++) {
      const token = tokenIds[i]!;
      let k = Math.imul(token, 0xcc9e2d51);
      k = Math.imul((k << 15) | (k >>> 17), 0x1b873593);
      a ^= k;
      a = (Math.imul((a << 13) | (a >>> 19), 5) + 0xe6546b64) | 0;
      k = Math.imul(token, 0xab0e9789);
      k = Math.imul((k << 16) | (k >>> 16), 0x38b34ae5);
      b ^= k;
      b = (Math.imul((b << 17) | (b >>> 15), 5) + 0x0bcaa747) | 0;
    }
    this.#settle(a ^ (to - from), b);
  }

  /** Makes the chain different from one without `key`. */
  mix(key: string): void {
    let a = this.lo;
    let b = this.hi;
    for (let i = 0; i < key.length; i++) {
      const unit = key.charCodeAt(i);
      a = Math.imul(a ^ unit, 0x01000193);
      b = Math.imul(((b << 5) | (b >>> 27)) ^ unit, 0x85ebca6b);
    }
    this.#settle(a ^ 0x55555555, b ^ key.length);
  }

  #settle(a: number, b: number): void {
    a = (a + b) | 0;
    b = (b + a) | 0;
    a = finalMix(a);
    b = finalMix(b);
    a = (a + b) | 0;
    this.lo = a >>> 0;
    this.hi = (b + a) >>> 0;
  }
}

function finalMix(h: number): number {
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return h ^ (h >>> 16);
}

const chain = new TokenChain();

/** For prompts to the base model without a salt. */
export const baseRoot: Root = { lo: 0x9e3779b9, hi: 0x7f4a7c15 };

export function rootOf(lora: string | null, salt: string | null): Root {
  if (lora === null && salt === null) return baseRoot;
  chain.start(baseRoot);
  chain.mix(lora === null ? 'base' : `lora ${lora}`);
  chain.mix(salt === null ? 'plain' : `salt ${salt}`);
  return { lo: chain.lo, hi: chain.hi };
}
