import type { Config } from '../config/options.ts';
import type { PlacedRequest, Placer } from '../placed-request.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { FleetModels } from '../fleet/fleet-models.ts';
import type { Role, Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import type { Hold } from './policy.ts';
import { usable } from './usable-workers.ts';
import type { HoldQueue } from './hold-queue.ts';

export interface FullWorkersOptions {
  /** How many requests may be held. */
  readonly queueSize: number;
  readonly queueTimeoutMs: number;
}

export const fullWorkersOptions = ({ queueSize, queueTimeoutSecs }: Config): FullWorkersOptions => ({
  queueSize,
  queueTimeoutMs: queueTimeoutSecs * 1000,
});

/**
 * Holds requests whose every worker is at `--worker-max-inflight`: first come, first served, except that a request
 * overtakes those whose own workers are still full.
 */
export class FullWorkers implements Placer {
  /** Requests that were refused because too many were held. */
  shed = 0;
  readonly isLimit = true;
  readonly queue: HoldQueue;
  readonly #fleet: Fleet;
  readonly #options: FullWorkersOptions;
  readonly #models: FleetModels | null;
  /** All workers were full, and no request was held without a worker: it is not looked for such requests again until the workers change. */
  #lookedAt: { readonly eligible: readonly Worker[] | null; readonly revision: number | null } = {
    eligible: null,
    revision: null,
  };

  constructor(fleet: Fleet, queue: HoldQueue, options: FullWorkersOptions, models: FleetModels | null = null) {
    this.#fleet = fleet;
    this.queue = queue;
    this.#options = options;
    this.#models = models;
  }

  /**
   * Called only while a worker is full or a request is held.
   * @returns the workers that are not full; no worker for a new request while other requests are held, of several models those of its own
   */
  withRoom(x: PlacedRequest, workers: readonly Worker[]): readonly Worker[] {
    const open = usable(
      x,
      workers.filter((worker) => !this.#fleet.isFull(worker)),
    );
    if (x.placer !== null || open.length === 0) return open;
    const held = this.#models?.areSeveral === true ? this.queue.sizeFor(this, x.model) : this.queue.sizeOf(this);
    if (held === 0) return open;
    // The retry runs later in this tick, after those that are already held.
    this.queue.retryHeld();
    return [];
  }

  hold(x: PlacedRequest): Hold | RouterError {
    const { queueSize, queueTimeoutMs } = this.#options;
    if (x.placer === null && this.queue.sizeOf(this) >= queueSize) {
      this.shed++;
      const message = 'Every worker has as many requests as it may (--worker-max-inflight). Retry later.';
      return new RouterError('too_many_requests', message);
    }
    x.placer = this;
    return { hold: 'workers_full', maxMs: queueTimeoutMs };
  }

  nextHeld(held: Iterable<PlacedRequest>): PlacedRequest | null {
    const { eligible, isAllFull } = this.#fleet;
    const models = this.#models?.areSeveral === true ? this.#models : null;
    const revision = models?.revision ?? null;
    if (isAllFull && this.#lookedAt.eligible === eligible && this.#lookedAt.revision === revision) return null;
    // Most requests have the workers and the roles of others: what is in vain for one of them is so for all.
    const inVain = new Map<readonly Worker[], Set<readonly Role[] | null>>();
    for (const x of held) {
      const { tried, roles } = x;
      const able = x.allowed(models !== null && x.model !== '' ? models.eligibleFor(x.model) : eligible);
      if (able instanceof RouterError) return x;
      if (tried.length > 0) {
        if (this.#mayGo(x, able)) return x;
      } else if (inVain.get(able)?.has(roles) !== true) {
        if (this.#mayGo(x, able)) return x;
        inVain.set(able, (inVain.get(able) ?? new Set()).add(roles));
      }
    }
    if (isAllFull) this.#lookedAt = { eligible, revision };
    return null;
  }

  /** A worker has room for it. Also if no worker is left for it, as if a plugin refuses it: it fails now instead of at its timeout. */
  #mayGo(x: PlacedRequest, able: readonly Worker[]): boolean {
    const left = usable(
      x,
      able.filter((worker) => !x.tried.includes(worker)),
    );
    const free = left.filter((worker) => !this.#fleet.isFull(worker));
    return left.length === 0 || usable(x, free).length > 0;
  }
}
