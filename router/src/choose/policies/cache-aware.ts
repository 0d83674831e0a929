import type { PlacedRequest, Prompt } from '../../placed-request.ts';
import type { Worker } from '../../fleet/worker.ts';
import { MAX_BLOCK_BYTES, unitsOf } from '../../kit/block-hash.ts';
import { isImbalanced } from '../imbalance.ts';
import { ListedWorkers } from '../listed-workers.ts';
import type { Policy, PolicyContext } from '../policy.ts';
import { PrefixIndex } from '../prefix-index/prefix-index.ts';
import { TieBreaker } from '../tie-breaker.ts';

/** Of so many workers all are looked up; of more, those that were sent most of the prompt. */
const FEW = 16;
/** Workers that have a part of the prompt, for `explain`. */
const SHOWN = 4;

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

  const listed = new ListedWorkers(fleet);
  /** The workers that were looked up last. */
  let compared: readonly Worker[] = [];
  /** By their slots: the blocks of the prompt that they have. */
  let matches = new Int32Array(64);
  /** The exchange of the last choice. */
  let asked: PlacedRequest | null = null;

  const lookUp = (x: PlacedRequest, workers: readonly Worker[]): void => {
    if (matches.length < fleet.inFlight.length) matches = new Int32Array(fleet.inFlight.length);
    const path = x.prompt === null ? NO_BLOCKS : pathOf(x.prompt);
    if (workers.length > FEW) {
      compared = [];
      listed.read(workers);
      addHolders(path, 1);
    } else {
      compared = workers;
      for (const { slot } of workers) matches[slot] = index.match(slot, path);
    }
  };

  /** Adds the workers that have most of the path, at least `wanted` if so many have a part of it. */
  const addHolders = (path: Uint32Array, wanted: number): void => {
    const found: Worker[] = [];
    index.holders(path, wanted, (slot, blocks) => {
      const worker = listed.at(slot);
      if (worker === null) return false;
      if (!compared.includes(worker)) {
        found.push(worker);
        matches[slot] = blocks;
      }
      return true;
    });
    compared = [...compared, ...found];
  };

  /** Looks up a worker that was not among those. */
  const add = (x: PlacedRequest, worker: Worker): void => {
    if (compared.includes(worker)) return;
    compared = [...compared, worker];
    matches[worker.slot] = x.prompt === null ? 0 : index.match(worker.slot, pathOf(x.prompt));
  };

  /** The workers that are best by their caches: at least one. */
  const preferred = (prompt: Prompt, workers: readonly Worker[]): readonly Worker[] => {
    let longest = 0;
    for (const { slot } of compared) longest = Math.max(longest, matches[slot]!);
    if (bytesOf(longest, prompt) > options.cacheThreshold * Math.min(prompt.bytes, MAX_BLOCK_BYTES)) {
      return compared.filter(({ slot }) => matches[slot] === longest);
    }
    let fewest = Infinity;
    for (const { slot } of workers) fewest = Math.min(fewest, index.blocks(slot));
    return workers.filter(({ slot }) => index.blocks(slot) === fewest);
  };

  return {
    needs: 'prompt',
    choose(x, workers) {
      const { prompt } = x;
      if (prompt === null || prompt.bytes === 0) return ties.least(workers, load).alone;
      lookUp(x, workers);
      asked = x;
      const candidates = isImbalanced(fleet, workers, options) ? workers : preferred(prompt, workers);
      const worker = ties.least(candidates, load);
      add(x, worker);
      x.predictedTokens = bytesOf(matches[worker.slot]!, prompt) * (prompt.tokens / prompt.bytes);
      index.insert(worker.slot, pathOf(prompt));
      return worker.alone;
    },
    whyMoved: () => ({ reason: 'prompt' }),
    flushed: ({ slot }) => index.drop(slot),
    compared(x, workers) {
      if (x !== asked || workers.length <= FEW) return workers;
      if (x.prompt !== null) addHolders(pathOf(x.prompt), SHOWN);
      return compared;
    },
    // As `choose` has found the matches, before it counted this prompt as sent.
    costs(x, workers, costs) {
      if (x === asked) for (const worker of workers) add(x, worker);
      for (const [i, worker] of workers.entries()) costs[i] = x === asked ? -matches[worker.slot]! : load(worker);
    },
    explain(x, workers) {
      if (x !== asked) lookUp(x, workers);
      for (const worker of workers) add(x, worker);
      return workers.map((worker) => ({
        worker: worker.url,
        terms: {
          matchedBytes: x.prompt === null ? 0 : bytesOf(matches[worker.slot]!, x.prompt),
          load: load(worker),
          blocks: index.blocks(worker.slot),
        },
      }));
    },
    indexSize: () => ({ blocks: index.size, bytes: index.bytes }),
    describe: () => ({
      blocks: index.size,
      maxBlocks: options.maxTreeSize,
      byWorker: Object.fromEntries(fleet.workers.map(({ url, slot }) => [url, index.blocks(slot)])),
    }),
    close: stopListening,
  };
}

const NO_BLOCKS = new Uint32Array(0);

/** A prompt without a whole block is one block of its own, so that the same prompt still finds its worker. */
function pathOf({ blocks, hash }: Prompt): Uint32Array {
  return blocks.length > 0 ? blocks : Uint32Array.of(hash);
}

function bytesOf(blocks: number, prompt: Prompt): number {
  return Math.min(unitsOf(blocks), prompt.bytes);
}
