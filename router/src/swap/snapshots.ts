import type { WeightSource } from '../weights/engine-weights.ts';
import type { Worker } from '../fleet/worker.ts';

/** What the engines hold. The ranks of an engine hold the same. */
export interface Snapshots extends WeightSource {
  /** Identity of the weights that the worker's engine holds; null: not known. Changes between load and resume. */
  of(worker: Worker): string | null;
  /**
   * The prompt-cache namespace for a request that is sent to the worker now. '' before the first reset: nothing is added.
   * @param session value of x-multi-turn-session-id; '' for a request without one: a new session each time
   */
  namespaceFor(worker: Worker, session: string): string;
  /**
   * An answer of the engine names weights that it should not have: the engine is checked before it gets more requests.
   * @param breaks `EngineWeights.breaks` when it got the request
   */
  doubt(worker: Worker, named: string, breaks: number): void;
  /** Position in the ledger of the worker's deployment, oldest first; -1: unknown identity. */
  positionOf(worker: Worker, identity: string): number;
}
