import type { Policy } from '../policy.ts';
import { Turns } from '../turns.ts';

const same = (): number => 0;

/** One worker after the other, whatever they have to do. */
export function roundRobin(): Policy {
  const turns = new Turns();
  return {
    needs: 'nothing',
    choose: (_x, workers) => turns.least(workers, same).alone,
  };
}
