import type { Worker } from '../fleet/worker.ts';
import type { Reset } from './ledger.ts';
import type { Transition } from './plan.ts';
import type { WorkerSet } from './worker-set.ts';

/** Workers whose weights are swapped by name: from `deployments`, or the one of --swap-snapshots. */
export interface Deployment {
  /** accounts/NAME/deployments/NAME; null: it answers to any. */
  readonly name: string | null;
  /** accounts/NAME/models/NAME; null: any. */
  readonly model: string | null;
  readonly transition: Transition;
  /** With the workers of other deployments that have the same ones. */
  readonly set: WorkerSet;
  readonly workers: () => readonly Worker[];
}

/** A new snapshot is there. */
export interface SwapSignal {
  readonly identity: string;
  readonly reset: Reset;
  readonly transition?: Transition;
  /** Where the engines find it, if not where the deployment says. */
  readonly path?: string;
}

export interface WorkerStatus {
  readonly worker: Worker;
  readonly state: 'registered' | 'warming' | 'serving' | 'draining' | 'swapping' | 'error' | 'quarantined';
  readonly snapshot: string | null;
  /** What it is to hold by the last swap; null: there was none. */
  readonly target: string | null;
  /** gate, drain, pause, load, label, resume, done or error. */
  readonly stage: string;
  readonly error: string | null;
  readonly adapters: readonly string[];
}
