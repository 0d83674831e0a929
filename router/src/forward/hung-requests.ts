import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import { REASONS, type Worker } from '../fleet/worker.ts';

/** What waits at a worker. */
export interface Waiting {
  /** Without a byte of an answer. */
  readonly requests: number;
  readonly oldestMs: number;
  /** Answers that began and have not ended. */
  readonly answers: number;
}

/** Takes requests away from workers that hang: those without a byte of an answer go elsewhere, answers that began are cut. */
export class HungRequests {
  readonly #inFlight: () => Iterable<Exchange>;
  readonly #fleet: Fleet;
  /** Workers that hang, and the proof of it. */
  readonly #hung = new Map<Worker, string>();

  constructor(fleet: Fleet, inFlight: () => Iterable<Exchange>) {
    this.#fleet = fleet;
    this.#inFlight = inFlight;
  }

  waitingAt(worker: Worker): Waiting {
    const all = this.#at(worker);
    const requests = all.filter(({ firstByteMs }) => firstByteMs === null);
    const oldestMs = requests.reduce((ms, { startMs }) => Math.max(ms, performance.now() - startMs), 0);
    return { requests: requests.length, oldestMs, answers: all.length - requests.length };
  }

  add(worker: Worker, proof: string): void {
    this.#hung.set(worker, proof);
    this.sweep();
  }

  /** What could not leave yet is asked again: other workers come, and the budget for retries fills up. */
  sweep(): void {
    for (const [worker, proof] of this.#hung) {
      // The oldest first: the budget may not be enough for all of them.
      for (const x of this.#at(worker)) x.activity?.workerHung?.(worker, proof);
      const isOver = !this.#fleet.has(worker) && !this.#fleet.isBusy(worker);
      if (isOver || (worker.reasons & REASONS.hung) === 0) this.#hung.delete(worker);
    }
  }

  #at(worker: Worker): Exchange[] {
    return [...this.#inFlight()]
      .filter((x) => x.isGeneration && x.placement?.legs.some((leg) => leg.worker === worker) === true)
      .toSorted((a, b) => a.startMs - b.startMs);
  }
}
