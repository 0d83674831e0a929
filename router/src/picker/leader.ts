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
  readonly retryMs: number;
}

/** Those of client-go, as controllers use them. */
const TIMES: LeaderTimes = { durationSecs: 15, deadlineMs: 10_000, retryMs: 2_000 };

/** Election of a leader among replicas: the one that holds the Lease leads. */
export class Leader {
  readonly #parts: LeaderParts;
  readonly #times: LeaderTimes;
  readonly #path: string;
  readonly #stop = new AbortController();
  #access: KubeAccess;
  #seen: Seen | null = null;
  /** When the present lease was last obtained (monotonic ms); null: another replica has it. */
  #heldSinceMs: number | null = null;
  #wasLeading = false;
  /** The last logged error: an outage is logged once per error, not per attempt. */
  #logged = '';
  readonly #running: Promise<void>;
  #closing: Promise<void> | null = null;

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

  /** Releases the lease, so that another replica leads at once. Never rejects. */
  close(): Promise<void> {
    return (this.#closing ??= this.#release());
  }

  async #release(): Promise<void> {
    this.#stop.abort();
    await this.#running;
    if (this.#heldSinceMs === null) return;
    this.#heldSinceMs = null;
    try {
      const lease = released(await this.#get(), this.#parts.identity, new Date());
      if (lease !== null) await this.#put(lease);
    } catch (error) {
      const { log, lease } = this.#parts;
      log.warn({ lease, error: (error as Error).message }, 'leader election: lease not released, it expires');
    }
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#try();
      this.#tell();
      await delay(this.#times.retryMs, undefined, { signal }).catch(() => {});
    }
  }

  async #try(): Promise<void> {
    const { identity, log, lease: name, find } = this.#parts;
    const { durationSecs } = this.#times;
    try {
      const lease = await this.#get();
      const startMs = performance.now();
      this.#seen = seeLease(lease, this.#seen, startMs);
      const mine = claimed(lease, identity, this.#seen, startMs, durationSecs, new Date());
      if (mine === null) this.#heldSinceMs = null;
      else {
        this.#seen = seeLease(await this.#put(mine), this.#seen, startMs);
        this.#heldSinceMs = startMs;
      }
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
