// What the simulation asks of a routing policy, and what it lets it see.
import type { Random } from '../../router/src/kit/rng.ts';
import type { EngineOptions } from './engine-options.ts';
import type { Request, Trace } from './workload.ts';

/** Every time is in virtual seconds, every engine is named by its index. */
export interface SimPolicy {
  /** @returns the engine to send the request to; null to hold it until the policy hands it to `PolicyHost.send` */
  route(request: Request): number | null;
  /** The request goes to the engine now, whether `route` or `PolicyHost.send` said so. */
  sent(request: Request, engine: number): void;
  /** Its output length is known from here on. */
  finished(request: Request, engine: number): void;
  /** The last turn of a session has finished; comes after `finished`. */
  closed(sessionId: string, groupId: string): void;
  /** The engine is gone. Its requests are routed anew right after; `finished` never came for them. */
  down(engine: number, lost: readonly Request[]): void;
  /** The engine is back, empty. */
  upped(engine: number): void;
  /** The engine takes requests but runs none until it is swapped. */
  paused(engine: number): void;
  /** The engine runs again, with an empty prefix cache. */
  swapped(engine: number): void;
  /** A chance to send what is held: after each completion, return or swap of an engine, and when asked for. */
  pump(): void;
}

/** What an engine tells those who ask it; always fresh, which flatters a policy that uses it. */
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
  /** Has `pump` called at that time. */
  pumpAt(seconds: number): void;
  /** A batch of the same kind of work that ran before: what a router may have learnt. */
  earlierBatch(): Trace;
}

export type SimPolicyFactory = (host: PolicyHost) => SimPolicy;
