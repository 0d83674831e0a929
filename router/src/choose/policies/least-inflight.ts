import type { Worker } from '../../fleet/worker.ts';
import type { Policy, PolicyContext } from '../policy.ts';
import { Turns } from '../turns.ts';

/** The worker with the fewest exchanges under way; ties take turns. */
export function leastInflight({ fleet }: PolicyContext): Policy {
  const turns = new Turns();
  const load = (worker: Worker): number => fleet.load(worker);
  return {
    needs: 'nothing',
    choose: (_x, workers) => turns.least(workers, load).alone,
    explain: (_x, workers) => workers.map((worker) => ({ worker: worker.url, terms: { load: fleet.load(worker) } })),
  };
}
