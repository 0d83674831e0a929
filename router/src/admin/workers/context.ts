import type { WorkerApi } from '../../config/options/workers.ts';
import type { Breakers } from '../../fleet/breakers.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Health } from '../../fleet/health.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { Meters } from '../../observe/meters.ts';

/** What the worker and probe endpoints read and steer. */
export interface WorkersContext {
  readonly fleet: Fleet;
  readonly breakers: Breakers;
  readonly meters: Meters;
  readonly health: Health;
  /** Whose answers they give. */
  readonly workerApi: WorkerApi;
  /** How long a new worker may take until it counts as failed. */
  readonly startupTimeoutMs: () => number;
  /** How long an engine may take to answer a question. */
  readonly healthTimeoutMs: () => number;
  readonly isDraining: () => boolean;
  /** Why a part of the requests fails now, beside a lack of workers; null: none does. */
  readonly problem: () => string | null;
}

/** What it has it finishes, or by force it doesn't. */
export function removeWorker(fleet: Fleet, worker: Worker, force: string | undefined): void {
  fleet.remove(worker);
  if (force === 'true' || force === '1') worker.pool.breakAll();
}
