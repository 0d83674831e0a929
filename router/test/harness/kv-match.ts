import type { KvIndex } from '../../src/choose/kv-index/kv-index.ts';
import type { Root } from '../../src/choose/kv-index/token-chain.ts';

/** How many of the first tokens are cached in one slot. */
export function kvMatch(index: KvIndex, slot: number, tokenIds: Int32Array, root?: Root): number {
  const out = new Float64Array(1);
  index.matchAll([slot], tokenIds, out, root);
  return out[0]!;
}
