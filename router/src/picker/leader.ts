import { setTimeout as delay } from 'node:timers/promises';
import type { KubeAccess } from '../fleet/discover/kube-access.ts';
import { KubeError, askJson } from '../fleet/discover/kube-api.ts';
import type { Logger } from '../observe/log.ts';
import { type Lease, type Seen, claimed, released, seeLease } from './lease.ts';

export interface LeaderParts {
  readonly access: KubeAccess;
  /** Reads the credentials again. */
  readonly find: () => Promise<KubeAccess>;
  /** The name of the Lease, in the namespace of this replica. */
  readonly lease: string;
  /** Of this replica. */
  readonly identity: string;
  readonly log: Logger;
  readonly times?: LeaderTimes;
}

export interface LeaderTimes {
  /** Another replica takes over when the holder did not renew the lease for this long. */
  readonly durationSecs: number;
  /** A holder that could not renew it for this long does not lead any more. */
  readonly deadlineMs: number;
  readonly renewMs: number;
  /** How often a replica that does not lead reads the lease. */
  readonly retryMs: number;
}

/** Those of client-go, as controllers use them; `retryMs` is shorter, because a picker that ends waits about a second for the next leader. */
const TIMES: LeaderTimes = { durationSecs: 15, deadlineMs: 10_000, renewMs: 2_000, retryMs: 500 };

/** Election of a leader among replicas: the one that holds the Lease leads. */
export class Leader {
  readonly #parts: LeaderParts;
  readonly #times: LeaderTimes;
  readonly #path: string;
  #access: KubeAccess;
  #seen: Seen | null = null;
  /** When the present lease was last obtained (monotonic ms); null: another replica has it. */
  #heldSinceMs: number | null = null;
  /** When another replica was seen to hold the lease that this one had released (monotonic ms). */
  #handedOverMs = -Infinity;
  #wasLeading = false;
  /** The last logged error: an outage is logged once per error, not per attempt. */
  #logged = '';
  #isReleasing = false;
  #isClosed = false;
  #wake = new AbortController();
  readonly #running: Promise<void>;

  constructor(parts: LeaderParts) {
    this.#parts = parts;
    this.#times = parts.times ?? TIMES;
    this.#access = parts.access;
    this.#path = `/apis/coordination.k8s.io/v1/namespaces/${parts.access.namespace}/leases`;
    this.#running = this.#run();
  }

  /** By the clock, so that a replica whose requests hang stops leading before another begins. */
  get isLeading(): boolean {
    return this.#heldSinceMs !== null && performance.now() - this.#heldSinceMs < this.#times.deadlineMs;
  }

  /** Another replica has taken the lease that this one had released, less than `ms` ago. */
  hasHandedOverWithin(ms: number): boolean {
    return performance.now() - this.#handedOverMs < ms;
  }

  /** Releases the lease, and leads until another replica holds it. */
  release(): void {
    this.#isReleasing = true;
    this.#wake.abort();
    this.#wake = new AbortController();
  }

  /** Releases the lease, and leads no more. Never rejects. */
  close(): Promise<void> {
    this.#isClosed = true;
    this.release();
    return this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#isClosed) {
      await this.#try();
      this.#tell();
      const { renewMs, retryMs } = this.#times;
      const isRenewing = this.isLeading && !this.#isReleasing;
      if (!this.#isClosed)
        await delay(isRenewing ? renewMs : retryMs, undefined, { signal: this.#wake.signal }).catch(() => {});
    }
    if (this.#heldSinceMs !== null) await this.#try();
    this.#heldSinceMs = null;
  }

  async #try(): Promise<void> {
    const { log, lease: name, find } = this.#parts;
    try {
      const lease = await this.#get();
      const startMs = performance.now();
      if (this.#isReleasing) await this.#giveUp(lease, startMs);
      else await this.#claim(lease, startMs);
      this.#logged = '';
    } catch (error) {
      // Another replica was faster.
      if (error instanceof KubeError && error.status === 409) return;
      const { message } = error as Error;
      if (message !== this.#logged)
        log.warn({ lease: name, error: message }, 'leader election: lease not read or written');
      this.#logged = message;
      this.#access = await find().catch(() => this.#access);
    }
  }

  async #claim(lease: Lease, nowMs: number): Promise<void> {
    this.#seen = seeLease(lease, this.#seen, nowMs);
    const mine = claimed(lease, this.#parts.identity, this.#seen, nowMs, this.#times.durationSecs, new Date());
    if (mine !== null) this.#seen = seeLease(await this.#put(mine), this.#seen, nowMs);
    this.#heldSinceMs = mine === null ? null : nowMs;
  }

  async #giveUp(lease: Lease, nowMs: number): Promise<void> {
    const free = released(lease, this.#parts.identity, new Date());
    if (free !== null) await this.#put(free);
    const isFree = free !== null || lease.spec?.holderIdentity === '';
    if (this.#heldSinceMs === null) return;
    this.#heldSinceMs = isFree ? nowMs : null;
    if (!isFree) this.#handedOverMs = nowMs;
  }

  /** @returns the lease, created if it does not exist */
  async #get(): Promise<Lease> {
    try {
      return (await this.#ask(`${this.#path}/${this.#parts.lease}`)) as Lease;
    } catch (error) {
      if (!(error instanceof KubeError) || error.status !== 404) throw error;
      const metadata = { name: this.#parts.lease, namespace: this.#parts.access.namespace };
      const lease = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata, spec: {} };
      return (await this.#ask(this.#path, 'POST', lease)) as Lease;
    }
  }

  async #put(lease: Lease): Promise<Lease> {
    return (await this.#ask(`${this.#path}/${this.#parts.lease}`, 'PUT', lease)) as Lease;
  }

  #ask(path: string, method?: 'POST' | 'PUT', body?: object): Promise<unknown> {
    const withinMs = this.#times.deadlineMs / 2;
    const signal = AbortSignal.timeout(withinMs);
    const options = { signal, silenceMs: withinMs, headMs: withinMs };
    return askJson(this.#access, path, method === undefined ? options : { ...options, method, body: body! });
  }

  #tell(): void {
    const { isLeading } = this;
    if (isLeading === this.#wasLeading) return;
    this.#wasLeading = isLeading;
    const { log, lease, identity } = this.#parts;
    log.info(
      { lease, identity },
      isLeading ? 'leader election: this replica leads' : 'leader election: this replica does not lead',
    );
  }
}
