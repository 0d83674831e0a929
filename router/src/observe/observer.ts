import type { Exchange, Failure } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';

/** Hears how attempts and exchanges end. It can't change one. */
export interface Observer {
  attemptFailed?(x: Exchange, worker: Worker, failure: Failure, detail: string, willRetry: boolean): void;
  finished(x: Exchange): void;
}
