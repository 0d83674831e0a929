import type { BreakerEvent, Breakers } from '../fleet/breakers.ts';
import type { HealthEvent } from '../fleet/health-watch.ts';
import { REASONS, type Worker } from '../fleet/worker.ts';
import type { Waiting } from '../forward/hung-requests.ts';
import type { Logger } from './log.ts';
import { noAvailableWorkers } from '../fleet/availability.ts';
import type { Fleet, FleetEvent } from '../fleet/fleet.ts';

function inFlightAt({ requests, oldestMs, answers }: Waiting): object {
  if (requests + answers === 0) return {};
  const oldest = requests === 0 ? '' : `, the oldest for ${Math.round(oldestMs / 1000)} s`;
  return { inFlight: `${requests} requests without a byte of the response${oldest}; ${answers} responses in progress` };
}

export function logHealth(
  log: Logger,
  event: HealthEvent,
  worker: Worker,
  detail: string,
  { failedChecks, waiting }: { failedChecks: number; waiting: () => Waiting },
): void {
  const { url } = worker;
  // SlimeRouter's wording, which scripts search for, although here the worker is readmitted once it is healthy.
  if (event === 'quarantined') {
    const line = `Worker ${url} failed ${failedChecks} checks. Marking DEAD.`;
    log.warn({ worker: url, detail, ...inFlightAt(waiting()) }, line);
  } else if (event === 'hung') {
    log.warn({ worker: url, detail, ...inFlightAt(waiting()) }, 'worker hung');
  } else {
    const level = event === 'readmitted' || event === 'identified' || event === 'not_up_yet' ? 'info' : 'warn';
    log[level]({ worker: url, detail }, `worker ${event.replaceAll('_', ' ')}`);
  }
}

export function logBreaker(log: Logger, event: BreakerEvent, worker: Worker): void {
  log[event === 'closed' ? 'info' : 'warn']({ worker: worker.url }, `circuit breaker: ${event.replace('_', ' ')}`);
}

export function logStall(log: Logger, worker: Worker): void {
  log.warn({ worker: worker.url, streams: worker.openStreams }, 'worker stalled: no byte of any response for 30 s');
}

/** Reasons that end when a new worker has joined. */
const WAITS = REASONS.version | REASONS.ranks;

const isComing = ({ reasons, isJoining }: Worker): boolean =>
  (reasons & ~WAITS) === 0 && (isJoining || (reasons & REASONS.ranks) !== 0);

/** Logs added and removed workers, and when no worker is available for new requests. */
export function fleetLog(log: Logger, fleet: Fleet, breakers: Breakers): (event: FleetEvent, worker: Worker) => void {
  /** null: no worker has been available yet. */
  let wasAvailable: boolean | null = null;
  return (event, worker) => {
    if (event !== 'changed') log.info({ worker: worker.url }, `worker ${event}`);
    const roles = fleet.servesPairs ? (['prefill', 'decode'] as const) : (['regular'] as const);
    const isOfAll = (workers: readonly Worker[]): boolean =>
      roles.every((role) => workers.some((each) => each.role === role));
    const isAvailable = fleet.servesPairs ? isOfAll(fleet.eligible) : fleet.eligible.length > 0;
    if (isAvailable === wasAvailable) return;
    if (!isAvailable) {
      // At a start workers are added one by one, and load weights before their first request.
      if (wasAvailable === null && !isOfAll(fleet.workers)) return;
      if (isOfAll(fleet.workers.filter((each) => fleet.isEligible(each) || isComing(each)))) return;
    }
    const isFirst = wasAvailable === null;
    wasAvailable = isAvailable;
    const counts = { eligible: fleet.eligible.length, workers: fleet.workers.length };
    if (!isAvailable) {
      const detail = noAvailableWorkers(fleet, breakers).message;
      log.warn({ ...counts, detail }, 'no worker is available: new requests are refused');
    } else if (!isFirst) log.info(counts, 'workers are available again');
  };
}
