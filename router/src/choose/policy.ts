import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import type { Random } from '../kit/rng.ts';

/** What a policy has to know of a request before it can choose. `body`: it waits until the last byte is here. */
export type Needs = 'nothing' | 'headers' | 'body';

/** Not now, though workers are eligible: the reason, and how long the exchange may be held at most. */
export interface Hold {
  readonly hold: string;
  readonly maxMs: number;
}

/**
 * Ranks workers. It is asked for the best placement and, when an attempt failed, asked again: it then finds the failed
 * workers left out, and so answers the next best as things stand now.
 */
export interface Policy {
  readonly needs: Needs;
  /** @param workers eligible and untried, at least one, in the order of the fleet */
  choose(x: Exchange, workers: readonly Worker[]): Placement | Hold;
}

export interface PolicyContext {
  readonly fleet: Fleet;
  readonly random: Random;
}

export type PolicyFactory = (context: PolicyContext) => Policy;
