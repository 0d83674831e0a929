import type { BreakerEvent } from '../fleet/breakers.ts';
import type { HealthEvent } from '../fleet/health-watch.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Logger } from './log.ts';

/** A line for what health checks found out. */
export function logHealth(log: Logger, event: HealthEvent, worker: Worker, detail: string, failedChecks = 0): void {
  const { url } = worker;
  // SlimeRouter's words, which scripts look for. Here such a worker comes back once it is well again.
  if (event === 'quarantined') {
    log.warn({ worker: url, detail }, `Worker ${url} failed ${failedChecks} checks. Marking DEAD.`);
  } else {
    const level = event === 'readmitted' || event === 'identified' ? 'info' : 'warn';
    log[level]({ worker: url, detail }, `worker ${event.replace('_', ' ')}`);
  }
}

export function logBreaker(log: Logger, event: BreakerEvent, worker: Worker): void {
  log[event === 'closed' ? 'info' : 'warn']({ worker: worker.url }, `circuit breaker: ${event.replace('_', ' ')}`);
}

export function logStall(log: Logger, worker: Worker): void {
  log.warn({ worker: worker.url, streams: worker.openStreams }, 'worker has streams open and says nothing');
}
