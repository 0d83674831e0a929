import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';

/** What a worker that comes back may have at first; doubled every second. */
const FIRST = 2;
const DURATION_MS = 10_000;

/**
 * Keeps a worker that comes back from getting everything at once: with nothing under way it looks like the best one to every
 * policy, with cold caches and perhaps still ill. A preference only: where all are coming back, all get what comes.
 */
export class SlowStart {
  readonly #fleet: Fleet;
  readonly #nowMs: () => number;
  readonly #sinceMs = new Map<Worker, number>();

  constructor(fleet: Fleet, nowMs: () => number) {
    this.#fleet = fleet;
    this.#nowMs = nowMs;
  }

  begin(worker: Worker): void {
    this.#sinceMs.set(worker, this.#nowMs());
  }

  /** Those of `workers` that are not to be spared; all, where none would be left. */
  withoutSpared(workers: readonly Worker[]): readonly Worker[] {
    if (this.#sinceMs.size === 0) return workers;
    const nowMs = this.#nowMs();
    for (const [worker, sinceMs] of this.#sinceMs) {
      if (nowMs - sinceMs >= DURATION_MS || !this.#fleet.has(worker)) this.#sinceMs.delete(worker);
    }
    const others = workers.filter((worker) => {
      const sinceMs = this.#sinceMs.get(worker);
      return sinceMs === undefined || this.#fleet.load(worker) < FIRST * 2 ** Math.floor((nowMs - sinceMs) / 1000);
    });
    return others.length > 0 ? others : workers;
  }
}
