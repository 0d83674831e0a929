import { randomUUID } from 'node:crypto';
import type { PoolOptions, UpstreamTls } from '../wire/upstream-pool.ts';
import { REASONS, type Reason, type Role, Worker, type WorkerKey, type WorkerOptions } from './worker.ts';
import { WorkerAllowlist } from './worker-allowlist.ts';
import { type WorkerAddress, readWorkerUrl, readWorkerUrls } from './worker-url.ts';

export interface FleetOptions {
  readonly pool: PoolOptions;
  /** TLS settings for https workers; null for the system's defaults. */
  readonly tls: UpstreamTls | null;
  /** The key for workers without their own. */
  readonly key?: WorkerKey;
  /** The addresses that workers may have. */
  readonly allowlist?: WorkerAllowlist;
  /** Requests in flight at once at each worker; 0 or left out for no limit. */
  readonly workerMaxInflight?: number;
  /** Data-parallel ranks of every engine whose URL names none; left out for one worker without a rank. */
  readonly ranksEach?: number;
  /** Such an engine is asked for its number of ranks and gets requests only after that (`setRanks`). */
  readonly asksForRanks?: boolean;
  /** Requests are served by pairs of a prefill and a decode worker. */
  readonly servesPairs?: boolean;
  /** A data-parallel rank may be one half of a pair. */
  readonly pairsRanks?: boolean;
  /** A gateway sends the requests, to an address and a port. */
  readonly isBehindGateway?: boolean;
}

export interface NewWorker {
  readonly role?: Role;
  /** Of a prefill worker. */
  readonly bootstrapPort?: number | null;
  readonly labels?: Readonly<Record<string, string>>;
  /** The API key that the engine requires. */
  readonly apiKey?: string | undefined;
  /** The worker is named by the operator, not through the API: without `--worker-allow` any address is allowed. */
  readonly isOperators?: boolean;
  /** Service discovery found it: the uid of its pod. */
  readonly podId?: string;
}

/** `drained`: a removed worker has finished its requests. */
export type FleetEvent = 'added' | 'removed' | 'changed' | 'drained';

/** Those that hold for an engine, whatever the number of its ranks. */
const REASONS_OF_ENGINE = REASONS.unhealthy | REASONS.draining | REASONS.version | REASONS.hung | REASONS.paused;

/**
 * All workers. The only place that changes eligibility and counts requests in flight.
 *
 * A slot is reused only when nothing of its last worker is in flight.
 */
export class Fleet {
  /** In the order they were added. */
  readonly workers: Worker[] = [];
  /** Removed workers with requests in flight. */
  readonly leaving = new Set<Worker>();
  /** Workers that may get new requests. Replaced, never changed in place. */
  eligible: readonly Worker[] = [];
  /** Requests in flight, by slot. */
  inFlight = new Int32Array(64);
  /** Requests in flight at workers that are not eligible any more. */
  strandedInFlight = 0;
  /** Workers at their limit; 0 if there is no limit. */
  fullCount = 0;
  /** Called when a worker has no request in flight any more; null: not needed. */
  onIdle: ((worker: Worker) => void) | null = null;
  readonly servesPairs: boolean;
  readonly #options: FleetOptions;
  readonly #allowlist: WorkerAllowlist;
  readonly #byUrl = new Map<string, Worker>();
  readonly #freeSlots: number[] = [];
  readonly #listeners = new Set<(event: FleetEvent, worker: Worker) => void>();
  #slots = 0;
  /** Requests that each worker may have at once; 0 for no limit. */
  #cap: number;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.servesPairs = options.servesPairs ?? false;
    this.#cap = options.workerMaxInflight ?? 0;
    this.#allowlist = options.allowlist ?? new WorkerAllowlist([]);
  }

  /** The only test for whether a worker gets new requests. */
  isEligible(worker: Worker): boolean {
    return worker.reasons === 0;
  }

  has(worker: Worker): boolean {
    return this.#byUrl.get(worker.url) === worker;
  }

  get(url: string): Worker | undefined {
    const address = readWorkerUrl(url, null);
    return typeof address === 'string' ? undefined : this.#byUrl.get(address.url);
  }

  /** The workers that a URL names: one worker; each rank of a range; or, without a rank, all ranks of the engine. */
  named(url: string): Worker[] {
    const addresses = readWorkerUrls(url, null);
    if (typeof addresses === 'string') return [];
    const found = addresses.flatMap((address) => this.#byUrl.get(address.url) ?? []);
    const [{ rank, engineUrl }] = addresses as [WorkerAddress];
    if (found.length > 0 || rank !== null) return found;
    return this.workers.filter((worker) => worker.engineUrl === engineUrl);
  }

  /**
   * Adds what a URL names: one worker, or several ranks of an engine.
   *
   * @returns the worker or the first rank (an existing one if the URL is known), or why it cannot be added
   */
  add(url: string, options: NewWorker = {}): Worker | string {
    const { tls, pool } = this.#options;
    const role = options.role ?? 'regular';
    // In a pair SGLang's engines choose the rank of the prefill engine themselves.
    const mayBeRank = role === 'regular' || this.#options.pairsRanks === true;
    const ranksEach = mayBeRank ? this.#options.ranksEach : 1;
    const isChecked = options.isOperators !== true || this.#allowlist.isLimited;
    const addresses = readWorkerUrls(url, tls, isChecked ? this.#allowlist.lookup : null, ranksEach);
    if (typeof addresses === 'string') return addresses;
    const { endpoint, rank, basePath } = addresses[0]!;
    const refusal = isChecked ? this.#allowlist.refusalOf(endpoint.host) : null;
    if (refusal !== null) return refusal;
    if (this.#options.isBehindGateway === true && (rank !== null || basePath !== ''))
      return `With --picker-port a gateway sends requests to an address and a port: a worker URL has no ${rank === null ? 'path' : 'data-parallel rank'} then. Put a router behind the gateway for such an engine.`;
    if (!mayBeRank && rank !== null)
      return "A data-parallel rank can't be one half of a pair of SGLang engines: give the engine as http://host:port.";
    const ownKey = options.apiKey === undefined ? null : { authorization: `Bearer ${options.apiKey}` };
    const asksForRanks = mayBeRank && this.#options.asksForRanks === true && rank === null;
    // The ranks that the engine was found to have, or those that are named.
    const known = asksForRanks ? this.named(url) : addresses.flatMap((address) => this.#byUrl.get(address.url) ?? []);
    const [there] = known;
    if (there !== undefined && options.role !== undefined && there.role !== role) {
      return `That engine is in the fleet as ${there.role}: remove it first.`;
    }
    for (const worker of known) {
      if (ownKey !== null) worker.key = ownKey;
      if (options.isOperators === true) worker.isKept = true;
      if (options.bootstrapPort !== undefined) worker.bootstrapPort = options.bootstrapPort;
    }
    if (asksForRanks && there !== undefined) return there;
    const key = ownKey ?? this.#options.key ?? { authorization: '' };
    const bootstrapPort = options.bootstrapPort ?? null;
    const { podId = null, labels = {} } = options;
    const made = { role, bootstrapPort, labels, pool, key, podId, isKept: podId === null, asksForRanks };
    const reasons = asksForRanks ? REASONS.ranks : 0;
    const [first] = addresses.map(
      (address) => this.#byUrl.get(address.url) ?? this.#insert(randomUUID(), address, made, reasons),
    );
    return first!;
  }

  /** A fleet with the same options and workers, without those that leave, to find out what `add` would refuse. */
  copyWithout(leavers: readonly Worker[]): Fleet {
    const copy = new Fleet(this.#options);
    for (const worker of this.workers) {
      if (!leavers.includes(worker)) copy.add(worker.url, { isOperators: true, role: worker.role });
    }
    return copy;
  }

  /**
   * The engine of a worker that asked for its ranks has `count` of them: each is a worker, and a single one has no number. The id of the
   * first worker stays. What keeps all workers of before from requests keeps the new ones from them, too.
   */
  setRanks(worker: Worker, count: number): void {
    const { engineUrl, authority, basePath, given, key, labels, bootstrapPort, podId, isKept } = worker;
    const { endpoint } = worker.pool;
    const before = this.workers.filter((each) => each.engineUrl === engineUrl && each.given.asksForRanks);
    const reasons = before.reduce((shared, each) => shared & each.reasons, REASONS_OF_ENGINE);
    const ranks = count > 1 ? Array.from({ length: count }, (_, rank) => rank) : [null];
    const urls = ranks.map((rank) => (rank === null ? engineUrl : `${engineUrl}@${rank}`));
    for (const [i, rank] of ranks.entries()) {
      const address = { url: urls[i]!, engineUrl, rank, authority, basePath, endpoint };
      if (this.#byUrl.has(address.url)) continue;
      this.#insert(
        i === 0 ? before[0]!.id : randomUUID(),
        address,
        { ...given, key, labels, bootstrapPort, podId, isKept },
        reasons,
      );
    }
    for (const each of before) {
      if (urls.includes(each.url)) this.setReason(each, 'ranks', false);
      else this.remove(each);
    }
  }

  #insert(id: string, address: WorkerAddress, options: WorkerOptions, reasons: number): Worker {
    const slot = this.#freeSlots.pop() ?? this.#slots++;
    if (slot >= this.inFlight.length) {
      const larger = new Int32Array(this.inFlight.length * 2);
      larger.set(this.inFlight);
      this.inFlight = larger;
    }
    const worker = new Worker(id, slot, address, options);
    worker.reasons |= reasons;
    if ((options.role !== 'regular') !== this.servesPairs) worker.reasons |= REASONS.role;
    // If the fleet's weights are known, a new worker gets requests only once its own are known to be the same.
    if (this.servingVersion(worker) !== null) worker.reasons |= REASONS.version;
    this.workers.push(worker);
    this.#byUrl.set(worker.url, worker);
    this.#refresh('added', worker);
    return worker;
  }

  /** The worker gets no new requests and finishes those in flight. */
  remove(worker: Worker): void {
    if (!this.has(worker)) return;
    this.workers.splice(this.workers.indexOf(worker), 1);
    this.#byUrl.delete(worker.url);
    this.#setReasons(worker, worker.reasons | REASONS.draining);
    worker.pool.retire();
    this.leaving.add(worker);
    this.#refresh('removed', worker);
    this.#freeIfDone(worker);
  }

  setReason(worker: Worker, reason: Reason, holds: boolean): void {
    const reasons = holds ? worker.reasons | REASONS[reason] : worker.reasons & ~REASONS[reason];
    if (reasons === worker.reasons) return;
    this.#setReasons(worker, reasons);
    // A removed worker is of no concern to listeners any more.
    if (this.has(worker)) this.#refresh('changed', worker);
  }

  setLabels(worker: Worker, labels: Readonly<Record<string, string>>): void {
    worker.labels = labels;
    this.#notify('changed', worker);
  }

  /** See `Worker.isJoining`. */
  setJoining(worker: Worker, isJoining: boolean): void {
    if (worker.isJoining === isJoining) return;
    worker.isJoining = isJoining;
    this.#notify('changed', worker);
  }

  /** Sets the limit of every worker; 0 for no limit. */
  setCap(count: number): void {
    const full = this.workers.filter((worker) => this.isFull(worker));
    this.#cap = count;
    this.fullCount = count === 0 ? 0 : this.inFlight.filter((load) => load >= count).length;
    for (const worker of full) if (!this.isFull(worker)) this.#notify('changed', worker);
  }

  isFull(worker: Worker): boolean {
    return this.#cap > 0 && this.inFlight[worker.slot]! >= this.#cap;
  }

  /** There are eligible workers and each is at its limit. */
  get isAllFull(): boolean {
    const { eligible } = this;
    return this.fullCount > 0 && eligible.length > 0 && eligible.every((worker) => this.isFull(worker));
  }

  /** The weight version of other engines' eligible workers that may serve a model of this worker, by majority; null if none reports one. */
  servingVersion(of: Worker): string | null {
    const counts = new Map<string, number>();
    let most: string | null = null;
    for (const worker of this.eligible) {
      const version = worker.weightVersion;
      if (version === null || worker.engineUrl === of.engineUrl || !worker.mayShareModel(of)) continue;
      counts.set(version, (counts.get(version) ?? 0) + 1);
      if (most === null || counts.get(version)! > counts.get(most)!) most = version;
    }
    return most;
  }

  begin(worker: Worker): void {
    const count = ++this.inFlight[worker.slot]!;
    if (count === this.#cap) this.fullCount++;
    if (worker.reasons !== 0) this.strandedInFlight++;
    // A half-open worker gets one exchange at a time.
    if (worker.isOnTrial) this.setReason(worker, 'breaker', true);
  }

  finish(worker: Worker): void {
    const count = --this.inFlight[worker.slot]!;
    if (count + 1 === this.#cap) this.fullCount--;
    if (count === 0 && this.onIdle !== null) this.onIdle(worker);
    if (worker.reasons === 0) return;
    this.strandedInFlight--;
    if ((worker.reasons & REASONS.draining) !== 0) this.#freeIfDone(worker);
  }

  load(worker: Worker): number {
    return this.inFlight[worker.slot]!;
  }

  /** Whether the worker has requests in flight; false for a worker that has left the fleet, because its slot may belong to another worker. */
  isBusy(worker: Worker): boolean {
    return (this.has(worker) || this.leaving.has(worker)) && this.load(worker) > 0;
  }

  /** @returns removes the listener */
  onEvent(listener: (event: FleetEvent, worker: Worker) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Connections to engines close as they become idle. */
  close(): void {
    for (const { pool } of this.workers) pool.retire();
  }

  #setReasons(worker: Worker, reasons: number): void {
    const wasEligible = this.isEligible(worker);
    worker.reasons = reasons;
    if (wasEligible === this.isEligible(worker)) return;
    const count = this.load(worker);
    this.strandedInFlight += wasEligible ? count : -count;
  }

  #freeIfDone(worker: Worker): void {
    if (this.inFlight[worker.slot] !== 0 || !this.leaving.delete(worker)) return;
    this.#freeSlots.push(worker.slot);
    this.#notify('drained', worker);
  }

  #refresh(event: FleetEvent, worker: Worker): void {
    this.eligible = this.workers.filter((candidate) => this.isEligible(candidate));
    this.#notify(event, worker);
  }

  #notify(event: FleetEvent, worker: Worker): void {
    for (const listener of this.#listeners) listener(event, worker);
  }
}
