import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Placement } from '../fleet/worker.ts';
import type { Hold, Policy } from './policy.ts';

/** What came of choosing: a placement (its work is counted already), a hold, or nobody. */
export type Choice = Placement | Hold | null;

/** Eligible workers → policy → placement. Counts the placement's legs as in flight before anybody else can choose. */
export class Chooser {
  policy: Policy;
  readonly #fleet: Fleet;

  constructor(fleet: Fleet, policy: Policy) {
    this.#fleet = fleet;
    this.policy = policy;
  }

  choose(x: Exchange): Choice {
    let workers = this.#fleet.eligible;
    if (x.tried.length > 0) workers = workers.filter((worker) => !x.tried.includes(worker));
    if (workers.length === 0) return null;
    const choice = this.policy.choose(x, workers);
    if ('legs' in choice) {
      for (const leg of choice.legs) this.#fleet.begin(leg.worker);
      x.placement = choice;
      x.isCounted = true;
    }
    return choice;
  }

  /** The placement's work is over, however it ended. */
  release(x: Exchange): void {
    if (x.placement === null || !x.isCounted) return;
    x.isCounted = false;
    for (const leg of x.placement.legs) this.#fleet.finish(leg.worker);
  }
}
