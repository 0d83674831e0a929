import type { Config } from '../config/options.ts';
import type { MoveReason } from '../fleet/session-move.ts';
import type { Candidate, Needs, PlacedRequest, Placer } from '../placed-request.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import type { RouterError } from '../kit/errors.ts';
import type { Random } from '../kit/rng.ts';
import type { StateMap } from './state.ts';

/** The request waits although workers are eligible: for which reason, and how long at most. */
export interface Hold {
  readonly hold: string;
  readonly maxMs: number;
}

/** Of an index of prompts: the blocks that are found in it, and the memory that it takes. */
export interface IndexSize {
  readonly blocks: number;
  readonly bytes: number;
}

export const sumOfSizes = (sizes: readonly IndexSize[]): IndexSize => ({
  blocks: sizes.reduce((sum, { blocks }) => sum + blocks, 0),
  bytes: sizes.reduce((sum, { bytes }) => sum + bytes, 0),
});

/** Why a policy moved a session: see `MoveReason`. */
export interface MoveWhy {
  readonly reason: MoveReason;
  /** With the reason `cheaper`: how many seconds of estimated cost the move saves. */
  readonly savedSecs?: number;
}

/**
 * Why what was known of a worker's KV cache is void:
 * - `engine`: the engine emptied its cache, loaded other weights, or was restarted;
 * - `namespace`: the engine keeps its blocks, but the router gives later requests another cache salt.
 */
export type FlushWhy = 'engine' | 'namespace';

/**
 * Chooses workers. It returns the best placement. When an attempt failed it is called again, without the workers that
 * failed, so its next answer is the best of the rest at that moment.
 */
export interface Policy<X extends PlacedRequest = PlacedRequest> extends Placer<X> {
  readonly needs: Needs;
  /** It goes by the token counts of earlier responses. */
  readonly learnsFromAnswers?: true;
  /** Called when the head was read and named a session. True: the policy can choose without the body. */
  knowsSession?(x: X): boolean;
  /** @param workers eligible and untried, at least one, in the order of the fleet */
  choose(x: X, workers: readonly Worker[]): Placement | Hold;
  /**
   * Why it chose `to` for a session whose last request went to `from`, which was one of the workers it was given.
   * Called after `choose` and before `begun`, for moved sessions only. The default reason is `policy`.
   */
  whyMoved?(x: X, from: Worker, to: Worker): MoveWhy;
  /** The choice is counted as in flight. Called in the same tick, before another choice is made. */
  begun?(x: X, worker: Worker): void;
  /** The client said that the session has ended. @returns whether the policy knew the session */
  sessionEnded?(session: string): boolean;
  /** Where the requests of this session go; null if not decided. A policy without this method keeps no sessions. */
  homeOf?(session: string): Worker | null;
  /** Whether the key or the prompt of this request of a session decides alone. While the weights of its worker are replaced it waits there. */
  hashes?(x: X): boolean;
  /** What was known of the worker's KV cache is void. */
  flushed?(worker: Worker, why: FlushWhy): void;
  /** The workers that `choose` compared, if it does not compare all: `costs` and `explain` are asked about those. Called right after it. */
  compared?(x: X, workers: readonly Worker[]): readonly Worker[];
  /**
   * What it ranks these workers by, at their index in `costs`: the lowest is best. Called right after `choose` with the same arguments,
   * to find the workers that `explain` is asked about. Without it those are the first ones of the fleet.
   */
  costs?(x: X, workers: readonly Worker[], costs: Float64Array): void;
  /** What speaks for and against each of these workers. Called right after `choose`, before `begun`, for a few of its workers. */
  explain?(x: X, workers: readonly Worker[]): Candidate[];
  /** The size of its index of prompts, for metrics. A policy without this method has no index. */
  indexSize?(): IndexSize;
  /** The current state in a few numbers, for `GET /policies`. */
  describe?(): Readonly<Record<string, unknown>>;
  /** Another policy replaces this one. */
  close?(): void;
}

/** What a policy is given. */
export interface PolicyContext {
  readonly fleet: Fleet;
  readonly random: Random;
  readonly options: Config;
  /** Monotonic milliseconds. */
  readonly nowMs: () => number;
  /** A map of strings that survives a restart of the router if it has a data directory. */
  readonly state: (name: string) => StateMap;
  /** Retries held requests. Not needed after the end of a request or session or an event of the fleet, which do so already. */
  readonly retryHeld: () => void;
  /** Logs how a choice was made. null if the log level excludes the line, so that it is not even built. */
  readonly trace: ((line: string) => void) | null;
  /** Logs a warning for the operator: something that the policy relies on is missing. */
  readonly warn: (line: string) => void;
}

/** Keeps requests from workers whose weights are being replaced. */
export interface SwapGate extends Placer {
  /** A worker is closed. */
  readonly isActive: boolean;
  /** The open ones, and the home of the request's session; all if these cannot serve it. @param home null: any worker may get it */
  openOf(x: PlacedRequest, workers: readonly Worker[], home: Worker | null): readonly Worker[];
  /** Of open workers, those that a request may get now that has waited for any of `workers`; a hold while others have to get requests first. */
  shareOf(
    x: PlacedRequest,
    open: readonly Worker[],
    workers: readonly Worker[],
  ): readonly Worker[] | Hold | RouterError;
  /** Of workers for pairs, those whose weights one of the other role has too. @param to the worker that is to be the other one; left out: any */
  matching(workers: readonly Worker[], to?: Worker): readonly Worker[];
  /** What becomes of a request with this placement; null: it may go on. */
  admit(x: PlacedRequest, placement: Placement): Hold | RouterError | null;
}

export type PolicyFactory = (context: PolicyContext) => Policy;
