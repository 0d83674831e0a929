import type { Reason } from './worker.ts';

/** Why a request is at its worker: first of its session, same worker as before, moved, retried, named by the client, or no session. */
export type Why = 'new' | 'home' | 'moved' | 'retry' | 'target' | 'policy';

/** Why a request of a session went to another worker than the session's previous request. */
export type MoveReason =
  /** The worker failed this request. */
  | 'retry'
  /** The worker left the fleet. */
  | 'removed'
  /** The worker was not eligible, for this reason. */
  | Reason
  /** The weights of the worker were being replaced, and the policy had not yet decided where the session goes. */
  | 'weight_swap'
  /** The worker was at `--worker-max-inflight`. */
  | 'full'
  /** The worker was new or had recovered recently, and got fewer requests. */
  | 'slow_start'
  /** The worker does not serve the request's model. */
  | 'model'
  /** A plugin excluded the worker. */
  | 'plugin'
  /** rollout: the new worker's estimated cost was lower by more than the threshold. */
  | 'cheaper'
  /** rollout: the sessions at the worker had outgrown its KV cache. */
  | 'no_room'
  /** rollout: the worker was not eligible in between and has lost the session's KV cache. */
  | 'cache_lost'
  /** The load of the workers was unequal, or the worker had more than its share. */
  | 'load'
  /** The workers on the hash ring changed. */
  | 'ring'
  /** The session's first worker is back. */
  | 'returned'
  /** The policy places requests by their prompts and keeps no sessions. */
  | 'prompt'
  /** The policy reports no reason. */
  | 'policy';

/** A request of a session went to another worker than the session's previous request. */
export interface Move {
  readonly session: string;
  /** URLs of the workers. */
  readonly from: string;
  readonly to: string;
  readonly reason: MoveReason;
  /** By how many seconds the estimated cost was lower; 0 where the reason is not `cheaper`. */
  readonly savedSecs: number;
  /** Monotonic ms. */
  readonly atMs: number;
}
