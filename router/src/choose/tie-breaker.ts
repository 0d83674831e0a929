import type { Worker } from '../fleet/worker.ts';

/**
 * Picks the worker of least cost. Ties are broken in turn, because a fixed order would send most work to the first
 * worker.
 */
export class TieBreaker {
  #lastSlot = -1;

  /** `workers`: at least one. The order goes by slot, so a list without some of the workers skips no other one. */
  least(workers: readonly Worker[], cost: (worker: Worker) => number): Worker {
    let best = workers[0]!;
    let least = cost(best);
    let nearest = this.#distanceOf(best);
    for (let i = 1; i < workers.length; i++) {
      const worker = workers[i]!;
      const its = cost(worker);
      if (its > least) continue;
      const distance = this.#distanceOf(worker);
      if (its === least && distance > nearest) continue;
      best = worker;
      least = its;
      nearest = distance;
    }
    this.#lastSlot = best.slot;
    return best;
  }

  /** 0 for the slot after the last choice, and so on. Unsigned, so the slots before it come after all others. */
  #distanceOf(worker: Worker): number {
    return (worker.slot - this.#lastSlot - 1) >>> 0;
  }
}
