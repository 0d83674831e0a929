import type { Config } from '../config/options.ts';
import type { Exchange, Placer } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { FleetModels } from '../fleet/models.ts';
import type { Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import type { Hold } from './policy.ts';
import { usable } from './roles.ts';
import type { WaitingRoom } from './waiting-room.ts';

export interface FullWorkersOptions {
  /** How many may wait. */
  readonly queueSize: number;
  readonly queueTimeoutMs: number;
}

export const fullWorkersOptions = ({ queueSize, queueTimeoutSecs }: Config): FullWorkersOptions => ({
  queueSize,
  queueTimeoutMs: queueTimeoutSecs * 1000,
});

/** Holds those whose every worker has as much as it may have: first come first, past those whose own workers are full still. */
export class FullWorkers implements Placer {
  /** How many were refused. */
  shed = 0;
  readonly #fleet: Fleet;
  readonly #room: WaitingRoom;
  readonly #options: FullWorkersOptions;
  readonly #models: FleetModels | null;

  constructor(fleet: Fleet, room: WaitingRoom, options: FullWorkersOptions, models: FleetModels | null = null) {
    this.#fleet = fleet;
    this.#room = room;
    this.#options = options;
    this.#models = models;
  }

  /** Those of `workers` with room; none for one that comes while others wait. */
  withRoom(x: Exchange, workers: readonly Worker[]): readonly Worker[] {
    if (this.#fleet.fullCount === 0 && this.#room.size === 0) return workers;
    const open = usable(
      x,
      workers.filter((worker) => !this.#fleet.isFull(worker)),
    );
    // Those who wait may wait for workers of another model.
    const isNew = x.placer === null && this.#models?.areSeveral !== true;
    if (!isNew || open.length === 0 || this.#room.sizeOf(this) === 0) return open;
    // Its turn comes after theirs, in this same round of the event loop.
    this.#room.knock();
    return [];
  }

  hold(x: Exchange): Hold | RouterError {
    const { queueSize, queueTimeoutMs } = this.#options;
    if (x.placer === null && this.#room.sizeOf(this) >= queueSize) {
      this.shed++;
      const message = 'Every worker has as many requests as it may (--worker-max-inflight). Retry later.';
      return new RouterError('too_many_requests', message, { retryAfterSecs: 1 });
    }
    // Its policy's patience may be over; that says nothing of this wait.
    if (x.placer !== this) x.isOverdue = false;
    x.placer = this;
    return { hold: 'workers_full', maxMs: queueTimeoutMs };
  }

  nextHeld(held: Iterable<Exchange>): Exchange | null {
    const { eligible } = this.#fleet;
    const open = eligible.filter((worker) => !this.#fleet.isFull(worker));
    const hasModels = this.#models !== null && this.#models.areSeveral;
    for (const x of held) {
      const { tried, roles } = x;
      const able = hasModels && x.model !== '' ? this.#models.eligibleFor(x.model) : eligible;
      if (tried.length === 0 && roles === null && able === eligible && (open.length > 0 || eligible.length === 0))
        return x;
      // Also one that has nobody left to wait for: it is told so.
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
