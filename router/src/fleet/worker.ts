import { type Asker, type Reply, ask } from '../engines/ask.ts';
import type { EngineKind } from '../engines/engine.ts';
import { type PoolOptions, UpstreamPool } from '../wire/upstream-pool.ts';
import type { WorkerAddress } from './worker-url.ts';

export type Role = 'regular' | 'prefill' | 'decode';

/** Why a worker gets no new requests: bits, because several reasons can hold at once. */
export const REASONS = {
  /** Failed its health checks. */
  unhealthy: 1,
  /** Too many failed generations (set by the circuit breaker). */
  breaker: 2,
  /** Being removed, or drained by request; finishes its requests. */
  draining: 4,
  /** One half of a pair in a fleet without pairs, or the other way round. */
  role: 8,
  /** Its weights are not, or not yet known to be, those of the serving workers. */
  version: 16,
  /** The number of data-parallel ranks of its engine is not known yet (`--dp-aware`). */
  ranks: 32,
  /** Answers nothing at all, or runs requests without making a token (see `HangJudge`). */
  hung: 64,
  /** Found paused when it joined, by no swap of this router. */
  paused: 128,
} as const;
export type Reason = keyof typeof REASONS;

/** One part of an exchange's work, and its worker. */
export interface Leg {
  readonly worker: Worker;
  readonly role: Role;
}

/** The workers of an exchange: one, or several legs (prefill and decode). */
export interface Placement {
  readonly legs: readonly Leg[];
}

/** What an engine requires of its clients. Shared by workers; replaced when key files are read again. */
export interface WorkerKey {
  /** The Authorization that replaces the client's; '' leaves the client's. */
  authorization: string;
}

export interface WorkerOptions {
  readonly role: Role;
  readonly bootstrapPort: number | null;
  readonly pool: PoolOptions;
  readonly labels: Readonly<Record<string, string>>;
  readonly key: WorkerKey;
  /** See `Worker`. */
  readonly podId: string | null;
  readonly isKept: boolean;
  /** Its engine is asked for the number of its data-parallel ranks, which are workers then. */
  readonly asksForRanks: boolean;
}

/** One engine endpoint, or one data-parallel rank. Counters that change per request are in `Fleet`, by `slot`. */
export class Worker {
  readonly id: string;
  /** As it was given, without a trailing slash, so that users recognise it. */
  readonly url: string;
  /** Without the rank: workers with the same `engineUrl` are ranks of one engine and share its health. */
  readonly engineUrl: string;
  readonly slot: number;
  readonly role: Role;
  /** The host of its URL, where the other half of a pair reaches it. */
  readonly host: string;
  /** Where a prefill engine meets its decode engines; null for the engine's own default. */
  bootstrapPort: number | null;
  /** Its data-parallel rank; null if the engine chooses one. */
  readonly rank: number | null;
  /** The Host header for requests to it. */
  readonly authority: string;
  /** The path before every request's own path; '' for none. */
  readonly basePath: string;
  readonly pool: UpstreamPool;
  /** The placement of an exchange that this worker serves alone. */
  readonly alone: Placement;
  /** Labels for people. Replaced, never changed in place. */
  labels: Readonly<Record<string, string>>;
  /** The uid of the pod that runs it, set by service discovery; null: none is known. */
  podId: string | null;
  /** The configuration or a client of the API named it: it does not leave with its pod. */
  isKept: boolean;
  /** What it was made with. Never shown, because it has a key. */
  readonly given: WorkerOptions;
  /** When it was added (monotonic ms). */
  readonly addedMs: number = performance.now();
  /** The problem of the last health check; null if there was none, or no check yet. */
  problem: string | null = null;
  /** When its health was last checked (Unix ms); null: not yet. */
  checkedAtMs: number | null = null;
  /** Never shown: not in responses, not in logs. */
  key: WorkerKey;
  /** Bits of `REASONS`; 0: eligible. */
  reasons = 0;
  /** Event streams in flight. */
  openStreams = 0;
  /** When any of its responses last brought a byte (monotonic ms, to a tick). */
  lastReadMs = 0;
  /** Since when it has requests and no response brought a byte (monotonic ms, to a tick). */
  quietSinceMs: number = performance.now();
  /** Its breaker is half-open: it gets one exchange at a time. */
  isOnTrial = false;
  /** The weights of its engine are being replaced, for as long as that takes: it makes no tokens and may fail checks. */
  isInSwap = false;
  /** Its engine is being identified, or loads the weights of the fleet, before its first request. */
  isJoining = false;
  /** Passed a health check, and failed none since. */
  isProven = false;
  /** The weight version for which it is held back and that was logged, so that it is logged once. */
  heldBackFor: string | null = null;
  /** The weight version that the engine reports; null if it reports none. */
  weightVersion: string | null = null;
  /** Requests of other clients when its engine was last asked (`--engine-load-interval-secs`). */
  foreignLoad = 0;
  /** The size of its KV cache in tokens; null if the engine does not report it. */
  kvTokens: number | null = null;
  /** null until its first passed health check, and after a restart until the engine is identified. */
  engine: EngineKind | null = null;
  /** As the engine reports it; null: not known. */
  engineVersion: string | null = null;
  /** How its tokenizer differs from the router's, as text; null if it does not, or was not compared. */
  tokenizerMismatch: string | null = null;
  /** The models that it serves: the JSON of each by its name. null: not known. */
  models: ReadonlyMap<string, string> | null = null;

  constructor(id: string, slot: number, address: WorkerAddress, options: WorkerOptions) {
    this.id = id;
    this.slot = slot;
    this.given = options;
    this.url = address.url;
    this.engineUrl = address.engineUrl;
    this.authority = address.authority;
    this.basePath = address.basePath;
    this.rank = address.rank;
    this.role = options.role;
    this.host = address.endpoint.host;
    this.bootstrapPort = options.bootstrapPort;
    this.labels = options.labels;
    this.podId = options.podId;
    this.isKept = options.isKept;
    this.key = options.key;
    this.pool = new UpstreamPool(address.endpoint, options.pool);
    this.alone = { legs: [{ worker: this, role: options.role }] };
  }

  get isHealthy(): boolean {
    return this.isProven && (this.reasons & REASONS.unhealthy) === 0;
  }

  /** Sends a GET to its engine, outside the pipeline. */
  asker(timeoutMs: number): Asker {
    const { endpoint } = this.pool;
    const { basePath, authority: host } = this;
    return (path) => ask(endpoint, basePath + path, timeoutMs, { host, authorization: this.key.authorization });
  }

  /** Sends a POST with a JSON body to its engine, outside the pipeline. */
  post(path: string, json: string, timeoutMs: number): Promise<Reply> {
    const { endpoint } = this.pool;
    const { authority: host, basePath, key } = this;
    return ask(endpoint, basePath + path, timeoutMs, { method: 'POST', host, authorization: key.authorization, json });
  }

  reasonNames(): Reason[] {
    return (Object.keys(REASONS) as Reason[]).filter((reason) => (this.reasons & REASONS[reason]) !== 0);
  }

  /** Whether both serve some model, as far as is known. */
  mayShareModel({ models }: Worker): boolean {
    return this.models === null || models === null || shareModel(this.models, models);
  }
}

/** Whether two workers with these lists have a model in common. One that lists nothing may serve any. */
export const shareModel = (one: ReadonlyMap<string, string>, other: ReadonlyMap<string, string>): boolean =>
  one.size === 0 || other.size === 0 || [...one.keys()].some((name) => other.has(name));
