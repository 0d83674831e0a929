import type { Policy } from '../policy.ts';

/** One worker after the other. */
export function roundRobin(): Policy {
  let turn = 0;
  return {
    needs: 'nothing',
    choose(_x, workers) {
      if (turn >= workers.length) turn = 0;
      return workers[turn++]!.alone;
    },
  };
}
