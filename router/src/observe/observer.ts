import type { Exchange } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';

/** Hears how attempts and exchanges end. It can't change one. */
export interface Observer {
  attemptFailed?(x: Exchange, worker: Worker, failure: string, detail: string, willRetry: boolean): void;
  finished(x: Exchange): void;
}
