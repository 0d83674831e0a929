import type { Fleet } from './fleet.ts';
import { REASONS, type Worker } from './worker.ts';

/** An engine with open streams sends on one of them every few milliseconds, except during a long prefill. */
const STALL_MS = 30_000;

/**
 * Finds workers that may hang: those with open event streams that send nothing on any of them, and unhealthy ones that
 * send nothing of any response. Each is reported once, until it sends again. (A healthy engine may be silent for
 * minutes if no response is a stream.)
 */
export class StallWatch {
  readonly #fleet: Fleet;
  readonly #onStalled: (worker: Worker) => void;
  readonly #stalled = new Set<Worker>();

  constructor(fleet: Fleet, onStalled: (worker: Worker) => void) {
    this.#fleet = fleet;
    this.#onStalled = onStalled;
  }

  isStalled(worker: Worker): boolean {
    return this.#stalled.has(worker);
  }

  sweep(nowMs: number): void {
    const { workers, leaving } = this.#fleet;
    for (const worker of [...workers, ...leaving]) {
      if (this.#fleet.load(worker) === 0) worker.quietSinceMs = nowMs;
      else if (worker.lastReadMs > worker.quietSinceMs) worker.quietSinceMs = worker.lastReadMs;
      const isUnhealthy = (worker.reasons & (REASONS.unhealthy | REASONS.hung)) !== 0;
      const isStalled =
        (worker.openStreams > 0 && nowMs - worker.lastReadMs > STALL_MS) ||
        (isUnhealthy && nowMs - worker.quietSinceMs > STALL_MS);
      if (isStalled === this.#stalled.has(worker)) continue;
      if (isStalled) {
        this.#stalled.add(worker);
        this.#onStalled(worker);
      } else this.#stalled.delete(worker);
    }
    for (const worker of this.#stalled)
      if (!this.#fleet.has(worker) && !leaving.has(worker)) this.#stalled.delete(worker);
  }
}
