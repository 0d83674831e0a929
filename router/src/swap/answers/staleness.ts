import { sessionOf } from '../../classify/routing-keys.ts';
import { tenantKey } from '../../classify/tenant-key.ts';
import { IDENTITY } from '../../config/options/swap.ts';
import type { Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { RouterError } from '../../kit/errors.ts';
import { type PlacedRequest, hasSucceeded } from '../../placed-request.ts';
import { type Plugin, Refused } from '../../plugin.ts';
import type { EngineTable } from '../engine-table.ts';

const MIN_SNAPSHOT = 'x-turnout-min-snapshot';

export interface StalenessParts {
  readonly snapshots: Pick<EngineTable, 'of' | 'targetsOf' | 'positionOf' | 'snapshotsBetween' | 'onChange'>;
  /** `maxSnapshots`: how many snapshots a session may lag behind; undefined: any number. */
  readonly options: {
    readonly maxSnapshots: number | undefined;
    readonly abortsStale: boolean;
    readonly sessionHeaders: readonly string[];
    readonly sessionTtlSecs: number;
  };
  readonly nowMs: () => number;
}

/** Where a request began, for the snapshots that its session lags behind. */
interface Start {
  readonly worker: Worker;
  readonly snapshot: string;
}

/** Lags that are counted each; larger ones are counted as the last. */
const MAX_LAG = 16;

/** Refuses requests for which weights are too old or too new: those of a worker, or those that a session began with. */
export class Staleness {
  readonly plugin: Plugin;
  /** Requests that have ended, by the number of snapshots in the ledger since the one that their session began with. */
  readonly lags = new Float64Array(MAX_LAG + 1);
  readonly #parts: StalenessParts;
  readonly #sessions: SessionStarts;
  /** Requests at engines. */
  readonly #running = new Map<Exchange, Start>();

  constructor(parts: StalenessParts) {
    const { options, nowMs, snapshots } = parts;
    this.#parts = parts;
    this.#sessions = new SessionStarts(nowMs, () => options.sessionTtlSecs * 1000);
    this.plugin = {
      name: 'staleness',
      appliesTo: ({ isGeneration }) => isGeneration,
      choose: (x: Exchange, workers) => this.#choose(x, workers),
      requestBody: (x: Exchange, body, worker) => this.#sent(x, body, worker),
      finished: (x: Exchange) => this.#finished(x),
    };
    snapshots.onChange((worker) => this.#changed(worker));
  }

  #choose(x: Exchange, workers: readonly Worker[]): readonly Worker[] {
    const least = x.head.get(MIN_SNAPSHOT);
    if (least === undefined) return workers;
    if (!IDENTITY.test(least)) throw new Refused(wrongIdentity());
    const { snapshots } = this.#parts;
    // The request waits for a swap that brings the snapshot.
    const left = workers.filter((worker) =>
      [snapshots.of(worker), ...snapshots.targetsOf(worker)].some((each) => this.#isAtLeast(worker, each, least)),
    );
    if (left.length === 0) throw new Refused(tooOld(least));
    return left;
  }

  /** Whether the worker does not have yet what the request needs. */
  awaits(x: PlacedRequest, worker: Worker): boolean {
    const least = x.isGeneration ? x.header(MIN_SNAPSHOT) : undefined;
    return least !== undefined && !this.#isAtLeast(worker, this.#parts.snapshots.of(worker), least);
  }

  /** The request waits no more: what counts is the snapshot that the worker has now. */
  #sent(x: Exchange, body: Buffer, worker: Worker): Buffer {
    const { snapshots, options } = this.#parts;
    const snapshot = snapshots.of(worker);
    const least = x.head.get(MIN_SNAPSHOT);
    if (least !== undefined && !this.#isAtLeast(worker, snapshot, least)) throw new Refused(tooOld(least));
    if (snapshot === null) return body;
    const session = this.#nameOf(x);
    const began = session === '' ? snapshot : this.#sessions.sent(session, x.tenant, snapshot);
    const start = { worker, snapshot: began };
    this.#running.set(x, start);
    const { maxSnapshots } = options;
    if (maxSnapshots !== undefined && this.#lagOf(start) > maxSnapshots) {
      throw new Refused(tooStale(began, maxSnapshots, 'began'));
    }
    return body;
  }

  #changed({ engineUrl }: Worker): void {
    const { maxSnapshots, abortsStale } = this.#parts.options;
    if (!abortsStale || maxSnapshots === undefined) return;
    for (const [x, start] of this.#running) {
      if (start.worker.engineUrl !== engineUrl || this.#lagOf(start) <= maxSnapshots) continue;
      x.ended(null, { kind: 'refused', error: tooStale(start.snapshot, maxSnapshots, 'abort') });
    }
  }

  #finished(x: Exchange): void {
    const start = this.#running.get(x);
    if (start === undefined) return;
    this.#running.delete(x);
    this.lags[Math.min(this.#lagOf(start), MAX_LAG)]!++;
    if (x.isLastTurn && hasSucceeded(x)) this.sessionEnded(this.#nameOf(x), x.tenant);
  }

  /** @param tenant undefined: the sessions with this name of all tenants */
  sessionEnded(session: string, tenant: string | undefined): void {
    this.#sessions.ended(session, tenant);
  }

  /** '': the request names no session. */
  #nameOf(x: Exchange): string {
    return sessionOf(x, this.#parts.options.sessionHeaders);
  }

  #isAtLeast(worker: Worker, snapshot: string | null, least: string): boolean {
    if (snapshot === null) return false;
    const { snapshots } = this.#parts;
    const wanted = snapshots.positionOf(worker, least);
    const present = snapshots.positionOf(worker, snapshot);
    return snapshot === least || (wanted !== null && present !== null && present >= wanted);
  }

  /** 0 also where the ledger does not have both: it was reset since then. */
  #lagOf({ worker, snapshot: began }: Start): number {
    const { snapshots } = this.#parts;
    const now = snapshots.of(worker);
    return now === null ? 0 : snapshots.snapshotsBetween(worker, began, now);
  }
}

const wrongIdentity = (): RouterError =>
  new RouterError(
    'bad_request',
    `${MIN_SNAPSHOT} must be the identity of a snapshot: letters, digits, ".", "_" and "-".`,
  );

const tooOld = (least: string): RouterError =>
  new RouterError('snapshot_too_old', `No worker has the snapshot "${least}" or a later one (${MIN_SNAPSHOT}).`);

function tooStale(began: string, maxSnapshots: number, what: 'began' | 'abort'): RouterError {
  const option = what === 'began' ? '--max-weight-staleness' : '--max-weight-staleness, --abort-stale';
  const message = `The session began with the snapshot "${began}", more than ${maxSnapshots} before that of its worker (${option}). Begin a new session.`;
  return new RouterError('session_too_stale', message);
}

/** Beyond this number the sessions used longest ago are forgotten. */
const MAX_SESSIONS = 100_000;

interface SessionStart {
  readonly snapshot: string;
  /** When a request of the session was last sent (monotonic ms). */
  readonly seenMs: number;
}

/** The snapshot that each session began with. Two tenants may have sessions of one name. */
export class SessionStarts {
  /** The one used longest ago is the first. */
  readonly #starts = new Map<string, SessionStart>();
  /** Those that were seen. */
  readonly #tenants = new Set<string>();
  readonly #nowMs: () => number;
  readonly #ttlMs: () => number;

  constructor(nowMs: () => number, ttlMs: () => number) {
    this.#nowMs = nowMs;
    this.#ttlMs = ttlMs;
  }

  get size(): number {
    return this.#starts.size;
  }

  /** A request of the session is sent to an engine with `snapshot`. @returns the snapshot that the session began with */
  sent(name: string, tenant: string, snapshot: string): string {
    const session = tenantKey(tenant, name);
    this.#tenants.add(tenant);
    const seenMs = this.#nowMs();
    const known = this.#starts.get(session);
    this.#starts.delete(session);
    this.#forgetIdle(seenMs);
    const start = { snapshot: known?.snapshot ?? snapshot, seenMs };
    this.#starts.set(session, start);
    return start.snapshot;
  }

  ended(name: string, tenant: string | undefined): void {
    for (const each of tenant === undefined ? this.#tenants : [tenant]) this.#starts.delete(tenantKey(each, name));
  }

  #forgetIdle(nowMs: number): void {
    for (const [session, { seenMs }] of this.#starts) {
      if (this.#starts.size < MAX_SESSIONS && nowMs - seenMs <= this.#ttlMs()) return;
      this.#starts.delete(session);
    }
  }
}
