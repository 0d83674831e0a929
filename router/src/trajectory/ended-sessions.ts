import { sessionOf } from '../classify/routing-keys.ts';
import type { Observer } from '../observe/observer.ts';
import type { SessionEnd } from './session-calls.ts';

/**
 * Reports the sessions whose client says with a request that it is the last one (`x-turnout-session-end: 1`). Stands after the observer
 * that ends plugins' turns, so that the turn of that request is known before.
 */
export const endedSessions = (report: (end: SessionEnd) => void, sessionHeaders: readonly string[]): Observer => ({
  finished(x) {
    const isLast = x.isLastTurn || x.head.get('x-turnout-session-end') === '1';
    // A refused request reached no engine: its client will send it again.
    if (!isLast || x.outcome === 'refused') return;
    const session = sessionOf(x, sessionHeaders);
    if (session !== '') report({ session, tenant: x.tenant });
  },
});
