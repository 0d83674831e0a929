import type { Worker } from '../fleet/worker.ts';
import type { RouterError } from '../kit/errors.ts';
import type { Reset } from './ledger.ts';
import type { Transition } from './plan.ts';

/** Workers whose weights are swapped by name: from `deployments`, or the one of --swap-snapshots. */
export interface Deployment {
  /** accounts/NAME/deployments/NAME; null: it answers to any. */
  readonly name: string | null;
  /** accounts/NAME/models/NAME; null: any. */
  readonly model: string | null;
  readonly transition: Transition;
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

export interface Deployments {
  readonly all: readonly Deployment[];
  /** By the names that a client gave in headers or body; null: no deployment has them. */
  find(names: { readonly deployment?: string; readonly model?: string }): Deployment | null;
  /** Starts the swap, or queues it after the running one; a newer signal replaces a queued one. */
  signal(deployment: Deployment, signal: SwapSignal): RouterError | null;
  /** Least ready first: error, then swapping, then serving. */
  status(deployment: Deployment): readonly WorkerStatus[];
  resetLedger(deployment: Deployment): void;
}
