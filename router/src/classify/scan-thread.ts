import { Worker } from 'node:worker_threads';
import { entryFile } from '../config/entry-file.ts';
import { SLICE_BYTES, copySlices } from '../kit/copy-slices.ts';
import { type BodyFacts, type BodyQuestion, nothingSaid } from './body-scan.ts';

/** What the thread is sent: a body lies in the first bytes of the memory that both share. */
export interface ScanCall {
  readonly memory: SharedArrayBuffer;
  readonly bytes: number;
  readonly question: BodyQuestion;
}

interface Job {
  readonly pieces: readonly Buffer[];
  readonly question: BodyQuestion;
  readonly isWanted: () => boolean;
  readonly done: (facts: BodyFacts) => void;
}

/**
 * Reads bodies on a thread of its own, one after the other, so that the event loop goes on meanwhile. The thread starts with
 * the first body and is started anew should it ever fail; the body that it failed over then says nothing.
 */
export class ScanThread {
  readonly #memory: SharedArrayBuffer;
  readonly #bytes: Uint8Array;
  readonly #jobs: Job[] = [];
  #current: Job | null = null;
  #worker: Worker | null = null;

  /** @param maxBytes of a body */
  constructor(maxBytes: number) {
    this.#memory = new SharedArrayBuffer(maxBytes);
    this.#bytes = new Uint8Array(this.#memory);
  }

  /** @param isWanted asked before each step: false: `done` is not called any more */
  scan(
    pieces: readonly Buffer[],
    question: BodyQuestion,
    isWanted: () => boolean,
    done: (facts: BodyFacts) => void,
  ): void {
    this.#jobs.push({ pieces, question, isWanted, done });
    if (this.#current === null) this.#next();
  }

  close(): void {
    this.#jobs.length = 0;
    void this.#worker?.terminate();
    this.#worker = null;
  }

  #next(): void {
    const job = this.#jobs.shift() ?? null;
    this.#current = job;
    if (job !== null) this.#copy(job, copySlices(job.pieces, this.#bytes, SLICE_BYTES));
  }

  #copy(job: Job, slices: Iterator<number, number>): void {
    if (!job.isWanted()) {
      this.#next();
      return;
    }
    const { done, value } = slices.next();
    if (done !== true) {
      setImmediate(() => this.#copy(job, slices));
      return;
    }
    this.#worker ??= this.#start();
    this.#worker.postMessage({ memory: this.#memory, bytes: value, question: job.question } satisfies ScanCall, []);
  }

  #start(): Worker {
    // Beside this file: .ts in the repository, .js in the published package.
    const worker = new Worker(entryFile('classify/scan-in-thread'));
    worker.on('message', (facts: BodyFacts) => this.#answer(facts));
    worker.on('error', () => {
      this.#worker = null;
      this.#answer(nothingSaid);
    });
    // Last, as listening for messages counts as a reason to live.
    worker.unref();
    return worker;
  }

  #answer(facts: BodyFacts): void {
    const job = this.#current;
    this.#next();
    if (job?.isWanted() === true) job.done(facts);
  }
}
