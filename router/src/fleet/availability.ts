import { RouterError } from '../kit/errors.ts';
import type { Breakers } from './breakers.ts';
import type { Fleet } from './fleet.ts';
import { REASONS, type Reason, type Worker } from './worker.ts';

const words: Readonly<Record<Reason, string>> = {
  unhealthy: 'unhealthy',
  breaker: 'ejected by the circuit breaker',
  draining: 'draining',
  role: 'with a role that does not serve here',
  version: 'with other weights than the fleet',
  ranks: 'with unknown data-parallel ranks',
  hung: 'hung',
  paused: 'found paused (GET /swap has the command that resumes)',
};

/** The error for a client when no worker may get its request: the reason of each worker, and when to retry. */
export function noAvailableWorkers(fleet: Fleet, breakers: Breakers): RouterError {
  const { workers } = fleet;
  const why = fleet.servesPairs ? whyNoPair(fleet) : whyNone(workers, '');
  const areAllOpen = workers.length > 0 && workers.every((worker) => (worker.reasons & REASONS.breaker) !== 0);
  const options = areAllOpen ? { retryAfterSecs: Math.max(1, Math.ceil(breakers.nextTrialMs / 1000)) } : {};
  return new RouterError('no_available_workers', `No available workers: ${why}. See GET /workers.`, options);
}

function whyNone(workers: readonly Worker[], role: string): string {
  const counts = (Object.keys(REASONS) as Reason[])
    .map((reason) => [reason, workers.filter((worker) => (worker.reasons & REASONS[reason]) !== 0).length] as const)
    .filter(([, count]) => count > 0)
    .map(([reason, count]) => `${count} ${words[reason]}${reason === 'unhealthy' ? problemsOf(workers) : ''}`);
  return workers.length === 0
    ? `none${role} is registered`
    : `of ${workers.length}${role} registered, ${counts.join(', ') || 'all failed'}`;
}

/** Problems that the message lists; the others are in `GET /workers`. */
const MAX_PROBLEMS = 3;

/** The problems of the last health checks. Never an engine's address, because clients read the message. */
function problemsOf(workers: readonly Worker[]): string {
  const unhealthy = workers.filter(({ reasons }) => (reasons & REASONS.unhealthy) !== 0);
  const problems = [...new Set(unhealthy.flatMap(({ problem }) => problem ?? []))];
  if (problems.length === 0) return '';
  return ` (${problems.slice(0, MAX_PROBLEMS).join('; ')}${problems.length > MAX_PROBLEMS ? '; …' : ''})`;
}

/** A pair needs one worker of each role: reports the roles without an eligible worker. */
function whyNoPair({ workers, eligible }: Fleet): string {
  const missing = (['prefill', 'decode'] as const).filter((role) => !eligible.some((worker) => worker.role === role));
  const roles = missing.length === 0 ? (['prefill', 'decode'] as const) : missing;
  return roles
    .map((role) =>
      whyNone(
        workers.filter((worker) => worker.role === role),
        ` for ${role}`,
      ),
    )
    .join('; ');
}
