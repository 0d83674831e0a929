import { randomUUID } from 'node:crypto';
import type { PoolOptions } from '../wire/upstream-pool.ts';
import { REASONS, type Reason, type Role, Worker, readWorkerUrl } from './worker.ts';

export interface FleetOptions {
  readonly pool: PoolOptions;
  /** PEM text of extra authorities for https workers. */
  readonly ca: string | null;
}

export type FleetEvent = 'added' | 'removed' | 'changed';

/**
 * All workers. The only place that changes who is eligible, and the only one that counts work in flight.
 *
 * A slot is given out again only when nothing of its last worker is in flight any more.
 */
export class Fleet {
  /** In the order they were added. */
  readonly workers: Worker[] = [];
  /** Those that may get new work; replaced, never changed in place. */
  eligible: readonly Worker[] = [];
  /** Exchanges under way, by slot. */
  inFlight = new Int32Array(64);
  readonly #options: FleetOptions;
  readonly #byUrl = new Map<string, Worker>();
  readonly #freeSlots: number[] = [];
  readonly #listeners = new Set<(event: FleetEvent, worker: Worker) => void>();
  #slots = 0;

  constructor(options: FleetOptions) {
    this.#options = options;
  }

  /** The one question that decides whether a worker gets new work. */
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

  /** @returns the worker (the one that was there when the URL is known), or words why it can't be one. */
  add(url: string, options: { role?: Role; labels?: Readonly<Record<string, string>> } = {}): Worker | string {
    const address = readWorkerUrl(url, this.#options.ca);
    if (typeof address === 'string') return address;
    const known = this.#byUrl.get(address.url);
    if (known !== undefined) return known;
    const slot = this.#freeSlots.pop() ?? this.#slots++;
    if (slot >= this.inFlight.length) {
      const larger = new Int32Array(this.inFlight.length * 2);
      larger.set(this.inFlight);
      this.inFlight = larger;
    }
    const worker = new Worker(randomUUID(), slot, address, {
      role: options.role ?? 'regular',
      labels: options.labels ?? {},
      pool: this.#options.pool,
    });
    // Where the fleet's weights are known, a newcomer serves only once its own are known to be the same.
    if (this.servingVersion() !== null) worker.reasons |= REASONS.version;
    this.workers.push(worker);
    this.#byUrl.set(worker.url, worker);
    this.#refresh('added', worker);
    return worker;
  }

  /** No new work for it; what it has it finishes. */
  remove(worker: Worker): void {
    if (!this.has(worker)) return;
    this.workers.splice(this.workers.indexOf(worker), 1);
    this.#byUrl.delete(worker.url);
    worker.reasons |= REASONS.draining;
    this.#refresh('removed', worker);
    this.#freeIfDone(worker);
  }

  setReason(worker: Worker, reason: Reason, holds: boolean): void {
    const reasons = holds ? worker.reasons | REASONS[reason] : worker.reasons & ~REASONS[reason];
    if (reasons === worker.reasons) return;
    worker.reasons = reasons;
    this.#refresh('changed', worker);
  }

  /** Weights of the workers that serve now; null when none of them tells. Where they differ: what most of them hold. */
  servingVersion(except?: Worker): string | null {
    const counts = new Map<string, number>();
    let most: string | null = null;
    for (const worker of this.eligible) {
      const version = worker.weightVersion;
      if (version === null || worker === except) continue;
      counts.set(version, (counts.get(version) ?? 0) + 1);
      if (most === null || counts.get(version)! > counts.get(most)!) most = version;
    }
    return most;
  }

  begin(worker: Worker): void {
    this.inFlight[worker.slot]!++;
    if (worker.isOnTrial) this.setReason(worker, 'breaker', true);
  }

  finish(worker: Worker): void {
    this.inFlight[worker.slot]!--;
    if ((worker.reasons & REASONS.draining) !== 0) this.#freeIfDone(worker);
  }

  load(worker: Worker): number {
    return this.inFlight[worker.slot]!;
  }

  /** @returns the call that ends it. */
  onEvent(listener: (event: FleetEvent, worker: Worker) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #freeIfDone(worker: Worker): void {
    if (this.inFlight[worker.slot] !== 0) return;
    worker.pool.closeIdle();
    this.#freeSlots.push(worker.slot);
  }

  #refresh(event: FleetEvent, worker: Worker): void {
    this.eligible = this.workers.filter((candidate) => this.isEligible(candidate));
    for (const listener of this.#listeners) listener(event, worker);
  }
}
