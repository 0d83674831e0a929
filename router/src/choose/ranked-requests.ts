import { SlotHeap } from '../kit/slot-heap.ts';
import type { PlacedRequest } from '../placed-request.ts';

/** So much rank an arrival is worth: it only tells apart requests of one rank. */
const ARRIVAL = 1e-9;

/**
 * Held requests in the order of their ranks, the highest first; of one rank, that which came first. To add, to remove and to look at the
 * first ones takes about as long with thousands (`npm run bench -- decisions`).
 */
export class RankedRequests {
  readonly #order = new SlotHeap();
  /** By slot. */
  readonly #requests: (PlacedRequest | null)[] = [];
  readonly #free: number[] = [];

  get size(): number {
    return this.#order.size;
  }

  /** @returns its slot, for `delete` */
  add(x: PlacedRequest, rank: number): number {
    const slot = this.#free.pop() ?? this.#requests.length;
    this.#requests[slot] = x;
    this.#order.set(slot, ARRIVAL * x.arrival! - rank);
    return slot;
  }

  delete(slot: number): void {
    this.#order.delete(slot);
    this.#requests[slot] = null;
    this.#free.push(slot);
  }

  /** To look at all of many takes long: an iteration is for the first ones. A change ends it. */
  *[Symbol.iterator](): Generator<PlacedRequest> {
    const order = this.#order;
    for (order.start(); order.slot >= 0; order.next()) yield this.#requests[order.slot]!;
  }
}
