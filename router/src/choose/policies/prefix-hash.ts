import type { Prompt } from '../../placed-request.ts';
import { blockCount } from '../../kit/block-hash.ts';
import type { Policy, PolicyContext } from '../policy.ts';
import { WorkerRing } from '../worker-ring.ts';
import { leastInflight } from './least-inflight.ts';

const LOAD_FACTOR = 1.25;

/** Half of a block: added to a length, it rounds the length to the nearest number of whole blocks. */
const HALF_BLOCK = 32;

/**
 * Sends prompts with the same first `--prefix-hash-tokens` to the same worker, by a hash ring of the workers' URLs. No
 * worker gets more than `--hash-load-factor` times its share of the requests in flight. Without a prompt: least in
 * flight.
 */
export function prefixHash(context: PolicyContext): Policy {
  const { fleet, options } = context;
  const ring = new WorkerRing(fleet, options.hashLoadFactor ?? LOAD_FACTOR);
  const keyless = leastInflight(context);
  return {
    needs: 'prompt',
    hashes: ({ prompt }) => prompt !== null,
    choose(x, workers) {
      if (x.prompt === null) return keyless.choose(x, workers);
      return ring.find(prefixKey(x.prompt, options.prefixHashTokens), workers).alone;
    },
    whyMoved: () => ({ reason: 'prompt' }),
    close: () => ring.close(),
  };
}

/** The ring key of the prompt's first `tokens` tokens, to the nearest block; of a prompt without a block, its hash. */
export function prefixKey({ blocks, bytes, tokens: all, hash }: Prompt, tokens: number): string {
  if (blocks.length === 0) return hash.toString(36);
  // Rounded to a byte: prompts with the same beginning have the same ratio except for its last bit.
  const wanted = Math.max(1, blockCount(Math.round((tokens * bytes) / all) + HALF_BLOCK));
  return blocks[Math.min(wanted, blocks.length) - 1]!.toString(36);
}
