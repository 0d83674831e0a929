import type { Policy, PolicyContext } from '../policy.ts';

/** Any worker, with equal probability. */
export function random({ random: chance }: PolicyContext): Policy {
  return {
    needs: 'nothing',
    choose: (_x, workers) => workers[Math.floor(chance() * workers.length)]!.alone,
  };
}
