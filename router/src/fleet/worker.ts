import { type Asker, ask } from '../engines/ask.ts';
import type { EngineKind } from '../engines/engine.ts';
import type { Endpoint, UpstreamTls } from '../wire/upstream-connection.ts';
import { type PoolOptions, UpstreamPool } from '../wire/upstream-pool.ts';

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

/** One engine endpoint, or one data-parallel rank of it. Counters that change with every request live in the fleet's flat arrays, by `slot`. */
export class Worker {
  readonly id: string;
  /** As it was given, without a trailing slash: what users recognise. */
  readonly url: string;
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
  readonly labels: Readonly<Record<string, string>>;
  /** Never shown: not in answers, not in logs. */
  key: WorkerKey;
  /** Bits of `REASONS`; 0: eligible. */
  reasons = 0;
  /** Event streams under way. */
  openStreams = 0;
  /** When any of its answers last brought a byte (monotonic ms, good to a tick). */
  lastReadMs = 0;
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

  constructor(
    id: string,
    slot: number,
    address: WorkerAddress,
    options: {
      role: Role;
      bootstrapPort: number | null;
      pool: PoolOptions;
      labels: Readonly<Record<string, string>>;
      key: WorkerKey;
    },
  ) {
    this.id = id;
    this.slot = slot;
    this.url = address.url;
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

  /** The reasons in words, for people. */
  reasonNames(): Reason[] {
    return (Object.keys(REASONS) as Reason[]).filter((reason) => (this.reasons & REASONS[reason]) !== 0);
  }
}

export interface WorkerAddress {
  /** With the rank, as `@rank`: it is what tells the workers of one engine apart. */
  readonly url: string;
  readonly rank: number | null;
  readonly authority: string;
  readonly basePath: string;
  readonly endpoint: Endpoint;
}

/** A data-parallel rank behind a URL, as the other routers write it: `http://host:port@3`. */
const RANK = /\/*@(\d{1,6})\/*$/;

/** No real URL is longer; the patterns below take their time with long ones. */
const MAX_URL_CHARS = 2_048;

/** Reads a worker's URL. @returns words for the user when it can't be one. */
export function readWorkerUrl(
  text: string,
  tls: UpstreamTls | null,
  lookup: Endpoint['lookup'] = null,
): WorkerAddress | string {
  if (text.length > MAX_URL_CHARS) return `A worker URL has at most ${MAX_URL_CHARS} characters.`;
  const [trimmed, rank] = splitRank(text.trim());
  const url = /^[a-z]+:\/\//i.test(trimmed) ? trimmed : `http://${trimmed}`;
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    return `"${shown(text)}" is not a URL: give a worker as http://host:port.`;
  }
  if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') {
    return `"${shown(text)}" is neither http nor https: give a worker as http://host:port.`;
  }
  if (parsed.username !== '' || parsed.password !== '') {
    return 'A worker URL must not carry a user name or password. (A data-parallel rank is a number: http://host:port@3.)';
  }
  if (parsed.search !== '' || parsed.hash !== '')
    return `"${shown(text)}" has a query or fragment: give http://host:port.`;
  const isTls = parsed.protocol === 'https:';
  const bare = url.replace(/\/+$/, '');
  return {
    url: rank === null ? bare : `${bare}@${rank}`,
    rank,
    authority: parsed.host,
    basePath: parsed.pathname === '/' ? '' : parsed.pathname.replace(/\/+$/, ''),
    endpoint: {
      host: parsed.hostname.replace(/^\[|\]$/g, ''),
      port: parsed.port === '' ? (isTls ? 443 : 80) : Number(parsed.port),
      isTls,
      tls,
      lookup,
    },
  };
}

/** Without what may be a password or a token. */
const shown = (text: string): string => text.slice(text.lastIndexOf('@') + 1).split(/[?#]/)[0]!;

function splitRank(text: string): [url: string, rank: number | null] {
  const match = RANK.exec(text);
  return match === null ? [text, null] : [text.slice(0, match.index), Number(match[1])];
}
