import type { Policy } from '../policy.ts';
import { TieBreaker } from '../tie-breaker.ts';

const same = (): number => 0;

/** One worker after the other, whatever their load. */
export function roundRobin(): Policy {
  const ties = new TieBreaker();
  return {
    needs: 'nothing',
    choose: (_x, workers) => ties.least(workers, same).alone,
  };
}
