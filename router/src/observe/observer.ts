import type { Exchange, Failure } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';

/** Is notified of the ends of attempts and exchanges; cannot change them. */
export interface Observer {
  /** @param waitMs until the next attempt; null: there is none */
  attemptFailed?(x: Exchange, worker: Worker, failure: Failure, detail: string, waitMs: number | null): void;
  /** The prefill engine of a pair has done its part. */
  prefilled?(x: Exchange, worker: Worker): void;
  finished?(x: Exchange): void;
}
