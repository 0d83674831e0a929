import { sessionKey } from '../../classify/session-key.ts';
import type { Worker } from '../../fleet/worker.ts';
import { HashRing } from '../../kit/ring.ts';
import type { Policy, PolicyContext } from '../policy.ts';
import { leastInflight } from './least-inflight.ts';

/**
 * All exchanges of a session to one worker, by a ring of the workers' URLs. While that worker is away its sessions go to
 * the next one clockwise, each session to its own next. Without a session key: least in flight.
 */
export function consistentHash(context: PolicyContext): Policy {
  const { fleet } = context;
  const keyless = leastInflight(context);
  let members: readonly Worker[] = [];
  let ring = new HashRing([]);
  let isStale = true;
  fleet.onEvent((event) => {
    // Health changes who is asked, not the ring: otherwise every hiccup would move other workers' sessions.
    if (event !== 'changed') isStale = true;
  });
  return {
    needs: 'headers',
    choose(x, workers) {
      const key = sessionKey(x);
      if (key === '') return keyless.choose(x, workers);
      if (isStale) {
        members = [...fleet.workers];
        ring = new HashRing(members.map(({ url }) => url));
        isStale = false;
      }
      const found = ring.find(key, (member) => {
        const worker = members[member]!;
        return fleet.isEligible(worker) && !x.tried.includes(worker);
      });
      return found < 0 ? keyless.choose(x, workers) : members[found]!.alone;
    },
  };
}
