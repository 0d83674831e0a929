import type { Worker } from '../fleet/worker.ts';

/** What the engines hold. The ranks of an engine hold the same. */
export interface Snapshots {
  /** Identity of the weights that the worker's engine holds; null: not known. Changes between load and resume. */
  of(worker: Worker): string | null;
  /**
   * The prompt-cache namespace for a request that is sent to the worker now. '' before the first reset: nothing is added.
   * @param session value of x-multi-turn-session-id; '' for a request without one: a new session each time
   */
  namespaceFor(worker: Worker, session: string): string;
  /** Called when `of(worker)` has changed: after the load, before the engine resumes. */
  onChange(listener: (worker: Worker, snapshot: string | null) => void): void;
  /** Called when the worker's engine is paused to load weights (true), and when it is about to be resumed or stays paused (false). */
  onPaused(listener: (worker: Worker, isPaused: boolean) => void): void;
  /** Position in the ledger of the worker's deployment, oldest first; -1: unknown identity. */
  positionOf(worker: Worker, identity: string): number;
}
