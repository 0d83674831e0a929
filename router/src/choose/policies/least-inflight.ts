import type { Policy, PolicyContext } from '../policy.ts';

/** The worker with the fewest exchanges under way. Ties rotate: a fixed order would load the first worker most. */
export function leastInflight({ fleet }: PolicyContext): Policy {
  let start = 0;
  return {
    needs: 'nothing',
    choose(_x, workers) {
      const count = workers.length;
      if (start >= count) start = 0;
      let at = start;
      let best = workers[at]!;
      let least = fleet.load(best);
      for (let i = start + 1; i < start + count && least > 0; i++) {
        const index = i < count ? i : i - count;
        const load = fleet.load(workers[index]!);
        if (load < least) {
          least = load;
          best = workers[index]!;
          at = index;
        }
      }
      start = at + 1;
      return best.alone;
    },
  };
}
