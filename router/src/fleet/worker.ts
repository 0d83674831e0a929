import { type Asker, type Reply, ask } from '../engines/ask.ts';
import type { EngineKind } from '../engines/engine.ts';
import { type PoolOptions, UpstreamPool } from '../wire/upstream-pool.ts';
import type { WorkerAddress } from './worker-url.ts';

export type Role = 'regular' | 'prefill' | 'decode';

/** Why a worker gets no new work: bits, so that any number of reasons can hold at once. */
export const REASONS = {
  /** Failed its health checks: in quarantine until it passes them again. */
  unhealthy: 1,
  /** Too many failed generations (set by the circuit breaker). */
  breaker: 2,
  /** Being removed: finishes what it has. */
  draining: 4,
  /** One half of a prefill/decode pair where requests are served whole, or the other way round. */
  role: 8,
  /** Its weights are not, or not yet known to be, those of the serving workers. */
  version: 16,
  /** How many data-parallel ranks its engine has is not known yet (`--dp-aware`). */
  ranks: 32,
  /** It hangs: it answers nothing at all, or runs requests without making a token (see `HangJudge`). */
  hung: 64,
} as const;
export type Reason = keyof typeof REASONS;

/** One part of an exchange's work and who does it. */
export interface Leg {
  readonly worker: Worker;
  readonly role: Role;
}

/** Who serves an exchange: one worker, or several legs (prefill and decode). */
export interface Placement {
  readonly legs: readonly Leg[];
}

/** What an engine asks of its clients. Shared by workers, and replaced when key files are read again. */
export interface WorkerKey {
  /** Value of the Authorization that takes the place of a client's; '' leaves that alone. */
  authorization: string;
}

export interface WorkerOptions {
  readonly role: Role;
  readonly bootstrapPort: number | null;
  readonly pool: PoolOptions;
  readonly labels: Readonly<Record<string, string>>;
  readonly key: WorkerKey;
}

/** One engine endpoint, or one data-parallel rank of it. Counters that change with every request live in the fleet's flat arrays, by `slot`. */
export class Worker {
  readonly id: string;
  /** As it was given, without a trailing slash: what users recognise. */
  readonly url: string;
  /** The same without the rank: workers with one `engineUrl` are ranks of one engine, and well or ill together. */
  readonly engineUrl: string;
  readonly slot: number;
  readonly role: Role;
  /** Host of its URL: where its partners of a pair find it. */
  readonly host: string;
  /** Where a prefill engine meets its decode engines; null: where that engine expects it by itself. */
  bootstrapPort: number | null;
  /** Which of its engine's data-parallel ranks it is; null: whichever the engine takes. */
  readonly rank: number | null;
  /** Value of Host for requests to it. */
  readonly authority: string;
  /** Path in front of every request's own, '' for none. */
  readonly basePath: string;
  readonly pool: UpstreamPool;
  /** This worker alone serves an exchange: the placement of every policy without pairs. */
  readonly alone: Placement;
  /** What whoever added it says of it, for people. Replaced, never changed in place. */
  labels: Readonly<Record<string, string>>;
  /** What it was made with. Never shown: a key is in it. */
  readonly given: WorkerOptions;
  /** When it was added (monotonic ms). */
  readonly addedMs: number = performance.now();
  /** What was wrong when its health was last checked; null: nothing, or it was not checked yet. */
  problem: string | null = null;
  /** When its health was last checked (Unix ms); null: not yet. */
  checkedAtMs: number | null = null;
  /** Never shown: not in answers, not in logs. */
  key: WorkerKey;
  /** Bits of `REASONS`; 0: eligible. */
  reasons = 0;
  /** Event streams under way. */
  openStreams = 0;
  /** When any of its answers last brought a byte (monotonic ms, good to a tick). */
  lastReadMs = 0;
  /** Since when it has work and none of its answers brought a byte (monotonic ms, good to a tick). */
  quietSinceMs: number = performance.now();
  /** Its breaker is half-open: it gets one exchange at a time. */
  isOnTrial = false;
  /** Passed a health check, and none failed since. */
  isProven = false;
  /** The weight version for which it is held back and that was reported, so that it is reported once. */
  heldBackFor: string | null = null;
  /** What the engine says its weights are; null when it says nothing. */
  weightVersion: string | null = null;
  /** Requests that others than this router have there, when its engine was last asked (`--engine-load-interval-secs`). */
  foreignLoad = 0;
  /** Tokens of context that its KV cache holds; null when the engine doesn't say. */
  kvTokens: number | null = null;
  /** null until its first good health check. */
  engine: EngineKind | null = null;
  /** As its engine says; null: not known. */
  engineVersion: string | null = null;
  /** Where its tokenizer differs from the router's, for people; null: nowhere, or nobody compared. */
  tokenizerMismatch: string | null = null;
  /** What it serves, as it lists it itself: the JSON of each by its name. null: not known. */
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
    this.key = options.key;
    this.pool = new UpstreamPool(address.endpoint, options.pool);
    this.alone = { legs: [{ worker: this, role: options.role }] };
  }

  get isHealthy(): boolean {
    return this.isProven && (this.reasons & REASONS.unhealthy) === 0;
  }

  /** Asks its engine outside the request road. */
  asker(timeoutMs: number): Asker {
    const { endpoint } = this.pool;
    const { basePath, authority: host } = this;
    return (path) => ask(endpoint, basePath + path, timeoutMs, { host, authorization: this.key.authorization });
  }

  /** Asks it something with a JSON body, outside the request road. */
  post(path: string, json: string, timeoutMs: number): Promise<Reply> {
    const { endpoint } = this.pool;
    const { authority: host, basePath, key } = this;
    return ask(endpoint, basePath + path, timeoutMs, { method: 'POST', host, authorization: key.authorization, json });
  }

  /** The reasons in words, for people. */
  reasonNames(): Reason[] {
    return (Object.keys(REASONS) as Reason[]).filter((reason) => (this.reasons & REASONS[reason]) !== 0);
  }
}
