import type { Worker } from '../../fleet/worker.ts';
import type { Policy, PolicyContext } from '../policy.ts';
import { TieBreaker } from '../tie-breaker.ts';

/** The worker with the fewest requests in flight. Ties are broken in turn. */
export function leastInflight({ fleet }: PolicyContext): Policy {
  const ties = new TieBreaker();
  const load = (worker: Worker): number => fleet.load(worker);
  return {
    needs: 'nothing',
    choose: (_x, workers) => ties.least(workers, load).alone,
    ...rankedBy(load),
  };
}

/** A policy that goes by the load alone. */
export const rankedBy = (load: (worker: Worker) => number): Pick<Policy, 'costs' | 'explain'> => ({
  costs(_x, workers, costs) {
    for (let i = 0; i < workers.length; i++) costs[i] = load(workers[i]!);
  },
  explain: (_x, workers) => workers.map((worker) => ({ worker: worker.url, terms: { load: load(worker) } })),
});
