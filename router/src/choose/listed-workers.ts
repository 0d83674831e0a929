import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';

/** Which workers a list has, by slot: for policies that look at a few workers of a long list. */
export class ListedWorkers {
  readonly #fleet: Fleet;
  readonly #workers: Worker[] = [];
  /** By slot: the round in which its worker was last listed. */
  readonly #rounds: number[] = [];
  #round = 0;
  #list: readonly Worker[] | null = null;

  constructor(fleet: Fleet) {
    this.#fleet = fleet;
  }

  read(list: readonly Worker[]): void {
    // Only this list is known never to change in place.
    if (list === this.#list && list === this.#fleet.eligible) return;
    this.#list = list;
    this.#round++;
    for (const worker of list) {
      this.#workers[worker.slot] = worker;
      this.#rounds[worker.slot] = this.#round;
    }
  }

  /** null: the list has no worker in this slot. */
  at(slot: number): Worker | null {
    return this.#rounds[slot] === this.#round ? this.#workers[slot]! : null;
  }

  has(worker: Worker): boolean {
    return this.at(worker.slot) === worker;
  }
}
