import type { Worker } from '../fleet/worker.ts';
import type { Reset } from './ledger.ts';
import type { Transition } from './plan.ts';
import type { WorkerSet } from './worker-set.ts';

/** Workers whose weights are swapped by name: from `deployments`, or the one of --swap-snapshots. */
export interface Deployment {
  /** accounts/NAME/deployments/NAME; null: any name matches. */
  readonly name: string | null;
  /** accounts/NAME/models/NAME; null: any. */
  readonly model: string | null;
  readonly transition: Transition;
  /** Shared with the deployments that have the same workers. */
  readonly set: WorkerSet;
  readonly workers: () => readonly Worker[];
}

/** A request for a swap to a snapshot. */
export interface SwapSignal {
  readonly identity: string;
  readonly reset: Reset;
  readonly transition?: Transition;
  /** Where the engines find it, if not where the deployment says. */
  readonly path?: string;
}

export interface WorkerStatus {
  readonly worker: Worker;
  readonly state: 'registered' | 'warming' | 'serving' | 'draining' | 'swapping' | 'error' | 'paused' | 'quarantined';
  readonly snapshot: string | null;
  /** The snapshot that the last swap wants for it; null: there was no swap. */
  readonly target: string | null;
  /** gate, drain, pause, load, label, resume, done or error. */
  readonly stage: string;
  readonly error: string | null;
  readonly adapters: readonly string[];
}
