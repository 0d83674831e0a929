import { SlotHeap } from '../../kit/slot-heap.ts';
import type { WorkerState } from './worker-state.ts';

/** Workers in the order of how much context has room there, the most first. */
export class RoomOrder {
  readonly #roomOf: (state: WorkerState) => number;
  /** By less room. */
  readonly #order = new SlotHeap();
  /** By slot. */
  readonly #states: (WorkerState | undefined)[] = [];
  #next = 0;

  /** @param roomOf tokens of context that have room at a worker */
  constructor(roomOf: (state: WorkerState) => number) {
    this.#roomOf = roomOf;
  }

  /** What the worker holds has changed, or the worker is new. */
  set(state: WorkerState): void {
    this.#states[state.worker.slot] = state;
    this.#order.set(state.worker.slot, -this.#roomOf(state));
  }

  delete(state: WorkerState): void {
    const { slot } = state.worker;
    // The slot may belong to another worker by now.
    if (this.#states[slot] !== state) return;
    this.#states[slot] = undefined;
    this.#order.delete(slot);
  }

  /** Calls `visit` for the workers with room for so many tokens, until it returns false. */
  visit(tokens: number, visit: (state: WorkerState) => boolean): void {
    this.#refresh();
    const order = this.#order;
    for (order.start(); order.slot >= 0 && -order.keyOf(order.slot) >= tokens; order.next()) {
      if (!visit(this.#states[order.slot]!)) return;
    }
  }

  /** All rooms change a little as the policy learns, so one worker at a time gets its place anew, and so does the first one. */
  #refresh(): void {
    this.#next = (this.#next + 1) % Math.max(1, this.#states.length);
    const next = this.#states[this.#next];
    if (next !== undefined) this.set(next);
    for (let first = -1; first !== this.#order.first;) {
      first = this.#order.first;
      this.set(this.#states[first]!);
    }
  }
}
