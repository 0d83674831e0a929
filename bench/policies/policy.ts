// The interface between the simulation and a routing policy.
import type { Random } from '../../router/src/kit/rng.ts';
import type { EngineOptions } from './engine-options.ts';
import type { Request, Trace } from './workload.ts';

/** All times are in virtual seconds, and an engine is named by its index. */
export interface SimPolicy {
  /** @returns the engine for the request; null to hold it until the policy passes it to `PolicyHost.send` */
  route(request: Request): number | null;
  /** The request goes to the engine now, by `route` or by `PolicyHost.send`. */
  sent(request: Request, engine: number): void;
  /** The running response continues on this engine (`SimulationOptions.rebalance`). */
  moved?(request: Request, engine: number): void;
  /** Its output length is known from now on. */
  finished(request: Request, engine: number): void;
  /** The last turn of a session has finished; comes after `finished`. */
  closed(sessionId: string, groupId: string): void;
  /** The engine failed. Its requests are routed again right after; `finished` is not called for them. */
  down(engine: number, lost: readonly Request[]): void;
  /** The engine is back, empty. */
  upped(engine: number): void;
  /** The engine accepts requests but runs none until `swapped`. */
  paused(engine: number): void;
  /** The engine runs again, with an empty prefix cache. */
  swapped(engine: number): void;
  /** The policy may send held requests: called after each completion, return or swap of an engine, and on request. */
  pump(): void;
}

/** The state of an engine without delay, which favours a policy that uses it. */
export interface EngineView {
  /** Requests in its queue. */
  readonly waitingCount: number;
  /** Requests it runs. */
  readonly runningCount: number;
  /** KV tokens that running requests hold. */
  readonly usedTokens: number;
}

/** The policy's side of the simulation. */
export interface PolicyHost {
  /** Virtual seconds since the start. */
  readonly now: number;
  readonly engineCount: number;
  readonly engineOptions: EngineOptions;
  readonly engines: readonly EngineView[];
  readonly random: Random;
  /** Sends a request that was held. */
  send(request: Request, engine: number): void;
  /** Calls `pump` at that time. */
  pumpAt(seconds: number): void;
  /** An earlier batch of the same kind, from which a router may have learned. */
  earlierBatch(): Trace;
}

export type SimPolicyFactory = (host: PolicyHost) => SimPolicy;
