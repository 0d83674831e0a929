import { RouterError } from '../kit/errors.ts';
import type { Breakers } from './breakers.ts';
import type { Fleet } from './fleet.ts';
import { REASONS, type Reason } from './worker.ts';

const words: Readonly<Record<Reason, string>> = {
  unhealthy: 'unhealthy',
  breaker: 'taken out by the circuit breaker',
  draining: 'draining',
  role: 'not for whole requests',
  version: 'with other weights than the fleet',
  ranks: 'not yet asked for their data-parallel ranks',
};

/** What to tell a client when no worker may get its request: why each can't, and when to come back. */
export function nobodyAvailable(fleet: Fleet, breakers: Breakers): RouterError {
  const { workers } = fleet;
  const counts = (Object.keys(REASONS) as Reason[])
    .map((reason) => [reason, workers.filter((worker) => (worker.reasons & REASONS[reason]) !== 0).length] as const)
    .filter(([, count]) => count > 0)
    .map(([reason, count]) => `${count} ${words[reason]}`);
  const why =
    workers.length === 0
      ? 'none is registered'
      : `of ${workers.length} registered, ${counts.join(', ') || 'all failed'}`;
  const areAllOpen = workers.length > 0 && workers.every((worker) => (worker.reasons & REASONS.breaker) !== 0);
  return new RouterError('no_available_workers', `No available workers: ${why}. See GET /workers.`, {
    retryAfterSecs: areAllOpen ? Math.max(1, Math.ceil(breakers.nextTrialMs / 1000)) : 1,
  });
}
