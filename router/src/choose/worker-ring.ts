import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import { HashRing } from '../kit/ring.ts';

/** A consistent hash ring of the fleet's workers, rebuilt when workers are added or removed. */
export class WorkerRing {
  readonly #fleet: Fleet;
  readonly #loadFactor: number;
  #members: readonly Worker[] = [];
  #ring = new HashRing([]);
  #isStale = true;
  readonly close: () => void;

  /** @param loadFactor how many times its share of the requests in flight a worker may have; 0 for no limit */
  constructor(fleet: Fleet, loadFactor: number) {
    this.#fleet = fleet;
    this.#loadFactor = loadFactor;
    this.close = fleet.onEvent((event) => {
      // Health does not change the ring: otherwise each short failure would move the keys of other workers.
      if (event === 'added' || event === 'removed') this.#isStale = true;
    });
  }

  /** The worker among `workers` (at least one, all eligible) that the key belongs to. */
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
      let inFlight = 1;
      for (const worker of workers) inFlight += fleet.load(worker);
      const most = Math.ceil((this.#loadFactor * inFlight) / workers.length);
      found = this.#ring.find(key, (i) => isOpen(members[i]!) && fleet.load(members[i]!) < most);
    }
    if (found < 0) found = this.#ring.find(key, (i) => isOpen(members[i]!));
    return members[found]!;
  }
}
