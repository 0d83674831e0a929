import type { Worker } from '../../fleet/worker.ts';
import type { Policy, PolicyContext } from '../policy.ts';
import { rankedBy } from './least-inflight.ts';

/**
 * Picks two different workers at random and chooses the one with fewer requests: by the router's own counts and, with
 * `--engine-load-interval-secs`, the requests of other clients that engines report.
 */
export function powerOfTwo({ fleet, random }: PolicyContext): Policy {
  const load = (worker: Worker): number => fleet.load(worker) + worker.foreignLoad;
  return {
    needs: 'nothing',
    choose(_x, workers) {
      const count = workers.length;
      const first = Math.floor(random() * count);
      if (count === 1) return workers[0]!.alone;
      const second = (first + 1 + Math.floor(random() * (count - 1))) % count;
      const a = workers[first]!;
      const b = workers[second]!;
      return (load(b) < load(a) ? b : a).alone;
    },
    ...rankedBy(load),
  };
}
