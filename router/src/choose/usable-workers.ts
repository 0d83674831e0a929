import type { PlacedRequest } from '../placed-request.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Fleet } from '../fleet/fleet.ts';

const NO_WORKERS: readonly Worker[] = [];

/**
 * The workers whose role the exchange needs: all of them, unless it needs a pair. None if one of the roles has no
 * worker.
 */
export function usable({ roles }: PlacedRequest, workers: readonly Worker[]): readonly Worker[] {
  if (roles === null) return workers;
  if (!roles.every((role) => workers.some((worker) => worker.role === role))) return NO_WORKERS;
  return workers.filter((worker) => roles.includes(worker.role));
}

/** Applies slow start to each role separately, because a pair needs a worker of both. */
export function withoutSpared(
  { roles }: PlacedRequest,
  workers: readonly Worker[],
  slowStart: SlowStart,
): readonly Worker[] {
  if (roles === null) return slowStart.withoutSpared(workers);
  return roles.flatMap((role) => slowStart.withoutSpared(workers.filter((worker) => worker.role === role)));
}

/** Requests that a readmitted worker may have at first; doubled every second. */
const FIRST = 2;
const DURATION_MS = 10_000;

/**
 * Limits the requests of a readmitted worker. With nothing in flight it looks best to every policy, although its cache
 * is cold and it may fail again. If all workers are in slow start, the limit does not apply.
 */
export class SlowStart {
  /** Some worker is limited. */
  isActive = false;
  readonly #fleet: Fleet;
  readonly #nowMs: () => number;
  readonly #sinceMs = new Map<Worker, number>();

  constructor(fleet: Fleet, nowMs: () => number) {
    this.#fleet = fleet;
    this.#nowMs = nowMs;
  }

  begin(worker: Worker): void {
    this.#sinceMs.set(worker, this.#nowMs());
    this.isActive = true;
  }

  /** The workers that are not limited now; all of them if that would leave none. */
  withoutSpared(workers: readonly Worker[]): readonly Worker[] {
    const nowMs = this.#nowMs();
    for (const [worker, sinceMs] of this.#sinceMs) {
      if (nowMs - sinceMs >= DURATION_MS || !this.#fleet.has(worker)) this.#sinceMs.delete(worker);
    }
    this.isActive = this.#sinceMs.size > 0;
    const others = workers.filter((worker) => {
      const sinceMs = this.#sinceMs.get(worker);
      return sinceMs === undefined || this.#fleet.load(worker) < FIRST * 2 ** Math.floor((nowMs - sinceMs) / 1000);
    });
    return others.length > 0 ? others : workers;
  }
}
