import type { HealthEvent } from '../fleet/health.ts';
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
