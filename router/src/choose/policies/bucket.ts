import type { PlacedRequest } from '../../placed-request.ts';
import type { Worker } from '../../fleet/worker.ts';
import { isImbalanced } from '../imbalance.ts';
import type { Policy, PolicyContext } from '../policy.ts';
import { PromptBands } from '../prompt-bands.ts';
import { TieBreaker } from '../tie-breaker.ts';

/**
 * For prefill: sends prompts of similar length to the same workers, short ones first, so that no short prompt waits for
 * a long one. Every `--bucket-adjust-interval-secs` the bands are computed again from the lengths seen, each with the
 * same sum of bytes. If the loads differ too much (`--balance-abs-threshold`, `--balance-rel-threshold`), or without a
 * prompt: least in flight.
 */
export function bucket({ fleet, nowMs, options }: PolicyContext): Policy {
  const bands = new PromptBands(options.bucketAdjustIntervalSecs * 1_000, nowMs());
  const ties = new TieBreaker();
  const load = (worker: Worker): number => fleet.load(worker);
  const inBand = (x: PlacedRequest, workers: readonly Worker[]): readonly Worker[] => {
    if (x.prompt === null || isImbalanced(fleet, workers, options)) return workers;
    const [first, end] = bands.membersFor(x.prompt.bytes, workers.length);
    return workers.slice(first, end);
  };
  return {
    needs: 'prompt',
    choose(x, workers) {
      // A prompt counts once, whatever the number of attempts.
      if (x.prompt !== null && x.attempts === 0) bands.see(x.prompt.bytes, nowMs());
      return ties.least(inBand(x, workers), load).alone;
    },
    costs(x, workers, costs) {
      const members = inBand(x, workers);
      for (const [i, worker] of workers.entries()) costs[i] = members.includes(worker) ? load(worker) : Infinity;
    },
    explain(x, workers) {
      const members = inBand(x, workers);
      return workers.map((worker) => ({
        worker: worker.url,
        terms: { inBand: members.includes(worker) ? 1 : 0, load: fleet.load(worker) },
      }));
    },
    whyMoved: () => ({ reason: 'prompt' }),
    describe: () => ({ upToBytes: bands.ends(fleet.eligible.length) }),
  };
}
