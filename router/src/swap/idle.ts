import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';

interface Wait {
  readonly workers: ReadonlySet<Worker>;
  readonly onIdle: () => void;
}

/** Calls back when the router has no request in flight at an engine. */
export class Idle {
  readonly #fleet: Fleet;
  readonly #waits = new Set<Wait>();

  constructor(fleet: Fleet) {
    this.#fleet = fleet;
  }

  /** @returns stops waiting */
  whenIdle(workers: ReadonlySet<Worker>, onIdle: () => void): () => void {
    // A copy: a worker that leaves the fleet is removed from the engine's ranks, but its requests must end too.
    const wait = { workers: new Set(workers), onIdle };
    this.#waits.add(wait);
    this.#fleet.onIdle = (worker) => this.#look(worker);
    // Not in the same tick: the plan is at work.
    setImmediate(() => this.#end(wait));
    return () => this.#remove(wait);
  }

  #look(worker: Worker): void {
    for (const wait of this.#waits) if (wait.workers.has(worker)) this.#end(wait);
  }

  #end(wait: Wait): void {
    if (!this.#waits.has(wait)) return;
    for (const worker of wait.workers) if (this.#fleet.isBusy(worker)) return;
    this.#remove(wait);
    wait.onIdle();
  }

  #remove(wait: Wait): void {
    this.#waits.delete(wait);
    if (this.#waits.size === 0) this.#fleet.onIdle = null;
  }
}
