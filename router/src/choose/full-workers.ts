import type { Config } from '../config/options.ts';
import type { PlacedRequest, Placer } from '../placed-request.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { FleetModels } from '../fleet/fleet-models.ts';
import type { Worker } from '../fleet/worker.ts';
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
    x.heldBy(this, x.placer !== this);
    return { hold: 'workers_full', maxMs: queueTimeoutMs };
  }

  nextHeld(held: Iterable<PlacedRequest>): PlacedRequest | null {
    const { eligible } = this.#fleet;
    const open = eligible.filter((worker) => !this.#fleet.isFull(worker));
    const hasModels = this.#models !== null && this.#models.areSeveral;
    for (const x of held) {
      const { tried, roles } = x;
      const able = x.allowed(hasModels && x.model !== '' ? this.#models.eligibleFor(x.model) : eligible);
      if (able instanceof RouterError) return x;
      if (tried.length === 0 && roles === null && able === eligible && (open.length > 0 || eligible.length === 0))
        return x;
      // A request with no worker left is returned too, as one that a plugin refuses, so that it fails now instead of at its timeout.
      const left = usable(
        x,
        able.filter((worker) => !tried.includes(worker)),
      );
      const free = left.filter((worker) => open.includes(worker));
      if (left.length === 0 || usable(x, free).length > 0) return x;
    }
    return null;
  }
}
