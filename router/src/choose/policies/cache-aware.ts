import { MAX_BLOCK_BYTES } from '../../classify/prompt.ts';
import type { Exchange, Prompt } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { unitsOf } from '../../kit/block-hash.ts';
import { isImbalanced } from '../imbalance.ts';
import type { Policy, PolicyContext } from '../policy.ts';
import { PrefixIndex } from '../prefix-index/prefix-index.ts';
import { TieBreaker } from '../tie-breaker.ts';

/**
 * The worker that was sent most of the prompt, if that is more than `--cache-threshold` of it; else the worker that was
 * sent the fewest prompt bytes, whose cache has most room. If the loads differ too much (`--balance-abs-threshold`,
 * `--balance-rel-threshold`), or without a prompt: least in flight. Ties: least in flight, then in turn.
 *
 * The least recently used blocks are forgotten beyond `--max-tree-size`.
 */
export function cacheAware({ fleet, options }: PolicyContext): Policy {
  const index = new PrefixIndex(options.maxTreeSize);
  const ties = new TieBreaker();
  const load = (worker: Worker): number => fleet.load(worker);
  const stopListening = fleet.onEvent((event, worker) => {
    if (event === 'removed') index.drop(worker.slot);
  });

  /** The workers that are best by their caches: at least one. */
  const preferred = (prompt: Prompt, workers: readonly Worker[]): readonly Worker[] => {
    const path = pathOf(prompt);
    const matches = workers.map(({ slot }) => index.match(slot, path));
    const longest = Math.max(...matches);
    if (bytesOf(longest, prompt) > options.cacheThreshold * Math.min(prompt.bytes, MAX_BLOCK_BYTES)) {
      return workers.filter((_, i) => matches[i] === longest);
    }
    let fewest = Infinity;
    for (const { slot } of workers) fewest = Math.min(fewest, index.blocks(slot));
    return workers.filter(({ slot }) => index.blocks(slot) === fewest);
  };

  return {
    needs: 'prompt',
    choose(x: Exchange, workers) {
      const { prompt } = x;
      if (prompt === null || prompt.bytes === 0) return ties.least(workers, load).alone;
      const candidates = isImbalanced(fleet, workers, options) ? workers : preferred(prompt, workers);
      const worker = ties.least(candidates, load);
      const path = pathOf(prompt);
      x.predictedTokens = bytesOf(index.match(worker.slot, path), prompt) * (prompt.tokens / prompt.bytes);
      index.insert(worker.slot, path);
      return worker.alone;
    },
    whyMoved: () => ({ reason: 'prompt' }),
    flushed: ({ slot }) => index.drop(slot),
    explain: ({ prompt }, workers) =>
      workers.map((worker) => ({
        worker: worker.url,
        terms: {
          matchedBytes: prompt === null ? 0 : bytesOf(index.match(worker.slot, pathOf(prompt)), prompt),
          load: fleet.load(worker),
          blocks: index.blocks(worker.slot),
        },
      })),
    describe: () => ({
      blocks: index.size,
      maxBlocks: options.maxTreeSize,
      byWorker: Object.fromEntries(fleet.workers.map(({ url, slot }) => [url, index.blocks(slot)])),
    }),
    close: stopListening,
  };
}

/** A prompt without a whole block is one block of its own, so that the same prompt still finds its worker. */
function pathOf({ blocks, hash }: Prompt): Uint32Array {
  return blocks.length > 0 ? blocks : Uint32Array.of(hash);
}

function bytesOf(blocks: number, prompt: Prompt): number {
  return Math.min(unitsOf(blocks), prompt.bytes);
}
