import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import { HashRing } from '../kit/ring.ts';

/** The fleet's workers on a ring, built anew when they come or go. */
export class WorkerRing {
  readonly #fleet: Fleet;
  readonly #loadFactor: number;
  #members: readonly Worker[] = [];
  #ring = new HashRing([]);
  #isStale = true;
  /** It will not be asked any more. */
  readonly close: () => void;

  /** @param loadFactor how many times its share of the exchanges under way a worker may have; 0: any */
  constructor(fleet: Fleet, loadFactor: number) {
    this.#fleet = fleet;
    this.#loadFactor = loadFactor;
    this.close = fleet.onEvent((event) => {
      // Health changes who is asked, not the ring: otherwise every hiccup would move other workers' keys.
      if (event === 'added' || event === 'removed') this.#isStale = true;
    });
  }

  /** The worker of `workers` (at least one, all of them eligible) that the key belongs to. */
  find(key: string, workers: readonly Worker[]): Worker {
    const fleet = this.#fleet;
    if (this.#isStale) {
      this.#members = [...fleet.workers];
      this.#ring = new HashRing(this.#members.map(({ url }) => url));
      this.#isStale = false;
    }
    const members = this.#members;
    // The usual list needs no search.
    const isOpen =
      workers === fleet.eligible
        ? (worker: Worker): boolean => fleet.isEligible(worker)
        : (worker: Worker): boolean => workers.includes(worker);
    let found = -1;
    if (this.#loadFactor > 0) {
      let underWay = 1;
      for (const worker of workers) underWay += fleet.load(worker);
      const most = Math.ceil((this.#loadFactor * underWay) / workers.length);
      found = this.#ring.find(key, (i) => isOpen(members[i]!) && fleet.load(members[i]!) < most);
    }
    if (found < 0) found = this.#ring.find(key, (i) => isOpen(members[i]!));
    return members[found]!;
  }
}
