import type { Config } from '../config/options.ts';
import type { PolicyName } from '../config/options/policy-names.ts';
import type { Candidate, Exchange, MoveReason, Placer } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import type { Random } from '../kit/rng.ts';
import type { StateMap } from './state.ts';

/**
 * What a policy has to know of a request before it can choose. More takes more time:
 * - `headers`: keys in headers (`exchange.key`);
 * - `key`: keys in headers or, when none is there, in the body: it waits for the whole body then;
 * - `prompt`: as `key`, and `exchange.prompt`: it always waits for the whole body.
 */
export type Needs = 'nothing' | 'headers' | 'key' | 'prompt';

/** Not now, though workers are eligible: the reason, and how long the exchange may be held at most. */
export interface Hold {
  readonly hold: string;
  readonly maxMs: number;
}

/** Why a policy moved a session: see `MoveReason`. */
export interface MoveWhy {
  readonly reason: MoveReason;
  /** Where the reason is `cheaper`: by how many seconds of estimated cost. */
  readonly savedSecs?: number;
}

/**
 * Ranks workers. It is asked for the best placement and, when an attempt failed, asked again: it then finds the failed
 * workers left out, and so answers the next best as things stand now.
 */
export interface Policy extends Placer {
  readonly needs: Needs;
  /** Asked when the head was read and named a session: true: it can choose without what is in the body. */
  knowsSession?(x: Exchange): boolean;
  /** @param workers eligible and untried, at least one, in the order of the fleet */
  choose(x: Exchange, workers: readonly Worker[]): Placement | Hold;
  /**
   * Why it chose `to` for a session whose last request went to `from`, which was among the workers that it was given. Called after
   * `choose` and before `begun`, for moved sessions only. Without it: the reason is `policy`.
   */
  whyMoved?(x: Exchange, from: Worker, to: Worker): MoveWhy;
  /** Its choice is counted as in flight: called in the same tick, before anybody else can choose. */
  begun?(x: Exchange, worker: Worker): void;
  /** The client says that no more exchanges of this session come. @returns whether the policy knew the session. */
  sessionEnded?(session: string): boolean;
  /** Where the exchanges of this session go; null: nowhere yet. Without it: the policy keeps no sessions. */
  homeOf?(session: string): Worker | null;
  /** The worker's caches hold nothing any more: it was told to drop them, or to load other weights. */
  flushed?(worker: Worker): void;
  /** Why it would choose as it does now: every candidate with its terms. */
  explain?(x: Exchange, workers: readonly Worker[]): Candidate[];
  /** Its present state in a few numbers, for `GET /policies`. */
  describe?(): Readonly<Record<string, unknown>>;
  /** Another policy takes its place. */
  close?(): void;
}

/** What a policy is made of. */
export interface PolicyContext {
  readonly fleet: Fleet;
  readonly random: Random;
  readonly options: Config;
  /** Monotonic milliseconds. */
  readonly nowMs: () => number;
  /** A map of strings that outlives the router's process when it has a data directory. */
  readonly state: (name: string) => StateMap;
  /** Something changed that may free held exchanges, other than the end of an exchange or an event of the fleet. */
  readonly knock: () => void;
  /** Writes a line on how a choice was made; null where nobody reads it, so that the line is not even built. */
  readonly trace: ((line: string) => void) | null;
  /** Writes a line for the operator: something that the policy relies on is missing. */
  readonly warn: (line: string) => void;
}

export type PolicyFactory = (context: PolicyContext) => Policy;

/** What a policy of the user's own is made of: as the built-in ones are, and of those. */
export interface CustomPolicyContext extends PolicyContext {
  /** A new policy of that name, to build on: `{ ...context.builtIn('sticky_least_loaded'), choose(x, workers) { … } }`. */
  readonly builtIn: (name: PolicyName) => Policy;
}

/** The default export of a policy module. */
export type CustomPolicy = (context: CustomPolicyContext) => Policy | Promise<Policy>;
