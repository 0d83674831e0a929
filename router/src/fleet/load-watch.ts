import { engines } from '../engines/engines.ts';
import type { Fleet } from './fleet.ts';
import type { Worker } from './worker.ts';

/**
 * Asks engines how many requests they have, so that those of other routers and clients count too: what an engine reports
 * beyond this router's own is `worker.foreignLoad`. An engine that doesn't say keeps 0.
 */
export class LoadWatch {
  readonly #fleet: Fleet;
  readonly #timeoutMs: number;
  readonly #timer: NodeJS.Timeout;
  readonly #asking = new Set<Worker>();

  constructor(fleet: Fleet, intervalMs: number, timeoutMs: number) {
    this.#fleet = fleet;
    this.#timeoutMs = timeoutMs;
    this.#timer = setInterval(() => this.#lookAtAll(), intervalMs);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #lookAtAll(): void {
    for (const worker of this.#fleet.workers) if (!this.#asking.has(worker)) void this.#look(worker);
  }

  async #look(worker: Worker): Promise<void> {
    // Its kind is known from its first good health check on.
    if (worker.engine === null) return;
    this.#asking.add(worker);
    const before = this.#fleet.load(worker);
    const reported = await engines[worker.engine].readLoad(worker.asker(this.#timeoutMs)).catch(() => null);
    this.#asking.delete(worker);
    // Own requests that came or went in between must not look like others'.
    const own = Math.max(before, this.#fleet.load(worker));
    worker.foreignLoad = reported === null ? 0 : Math.max(0, reported - own);
  }
}
