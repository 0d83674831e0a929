import type { WorkerApi } from '../../config/options/workers.ts';
import type { Breakers } from '../../fleet/breakers.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Health } from '../../fleet/health.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { Meters } from '../../observe/meters.ts';

export interface WorkersContext {
  readonly fleet: Fleet;
  readonly breakers: Breakers;
  readonly meters: Meters;
  readonly health: Health;
  /** The router whose response formats are used. */
  readonly workerApi: WorkerApi;
  /** A new worker counts as failed after this time. */
  readonly startupTimeoutMs: () => number;
  readonly healthTimeoutMs: () => number;
  readonly isDraining: () => boolean;
  /** Why some requests fail, apart from missing workers; null: none fails. */
  readonly problem: () => string | null;
}

/** Removes a worker; with `force` its requests in flight are aborted. */
export function removeWorker(fleet: Fleet, worker: Worker, force: string | undefined): void {
  fleet.remove(worker);
  if (force === 'true' || force === '1') worker.pool.breakAll();
}
