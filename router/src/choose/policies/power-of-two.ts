import type { Policy, PolicyContext } from '../policy.ts';

/** Two different workers by chance, the one with less in flight of them; by the router's own counts. */
export function powerOfTwo({ fleet, random }: PolicyContext): Policy {
  return {
    needs: 'nothing',
    choose(_x, workers) {
      const count = workers.length;
      const first = Math.floor(random() * count);
      if (count === 1) return workers[0]!.alone;
      const second = (first + 1 + Math.floor(random() * (count - 1))) % count;
      const a = workers[first]!;
      const b = workers[second]!;
      return (fleet.load(b) < fleet.load(a) ? b : a).alone;
    },
  };
}
