import type { Prompt } from '../../exchange.ts';
import { blockCount } from '../../kit/block-hash.ts';
import type { Policy, PolicyContext } from '../policy.ts';
import { WorkerRing } from '../worker-ring.ts';
import { leastInflight } from './least-inflight.ts';

const LOAD_FACTOR = 1.25;

/** Bytes from the middle of a prompt's first block to its end: added, they make whole blocks of the nearest size. */
const HALF_BLOCK = 32;

/**
 * Prompts that begin alike go to the same worker, by a ring of the workers' URLs: the first `--prefix-hash-tokens` count.
 * No worker takes more than `--hash-load-factor` times its share of what is under way. Without a prompt: least in flight.
 */
export function prefixHash(context: PolicyContext): Policy {
  const { fleet, options } = context;
  const ring = new WorkerRing(fleet, options.hashLoadFactor ?? LOAD_FACTOR);
  const keyless = leastInflight(context);
  return {
    needs: 'prompt',
    choose(x, workers) {
      if (x.prompt === null) return keyless.choose(x, workers);
      return ring.find(prefixKey(x.prompt, options.prefixHashTokens), workers).alone;
    },
    whyMoved: () => ({ reason: 'prompt' }),
    close: () => ring.close(),
  };
}

/** What stands for the prompt's first `tokens` tokens, to the nearest block; for all of it when it has no whole block. */
export function prefixKey({ blocks, bytes, tokens: all, hash }: Prompt, tokens: number): string {
  if (blocks.length === 0) return hash.toString(36);
  // To a whole byte: the ratio is the same for all prompts that begin alike, but for its last bit.
  const wanted = Math.max(1, blockCount(Math.round((tokens * bytes) / all) + HALF_BLOCK));
  return blocks[Math.min(wanted, blocks.length) - 1]!.toString(36);
}
