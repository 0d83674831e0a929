import type { Worker } from '../fleet/worker.ts';

/** Picks the worker of least cost; workers that cost the same take turns: a fixed order would load the first one most. */
export class Turns {
  #lastSlot = -1;

  /** `workers`: at least one. Who comes next is decided by slots, so a list that lacks some of them skips nobody else. */
  least(workers: readonly Worker[], cost: (worker: Worker) => number): Worker {
    let best = workers[0]!;
    let least = cost(best);
    let bestTurn = this.#turnOf(best);
    for (let i = 1; i < workers.length; i++) {
      const worker = workers[i]!;
      const its = cost(worker);
      if (its > least) continue;
      const turn = this.#turnOf(worker);
      if (its === least && turn > bestTurn) continue;
      best = worker;
      least = its;
      bestTurn = turn;
    }
    this.#lastSlot = best.slot;
    return best;
  }

  /** 0 for the slot after the last one taken, and so on around: unsigned, those before it come after all others. */
  #turnOf(worker: Worker): number {
    return (worker.slot - this.#lastSlot - 1) >>> 0;
  }
}
