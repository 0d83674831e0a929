import { engines } from '../engines/engines.ts';
import type { RankLoad } from '../engines/engine.ts';
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
  /** Addresses of the engines that are being asked. */
  readonly #asking = new Set<string>();

  constructor(fleet: Fleet, intervalMs: number, timeoutMs: number) {
    this.#fleet = fleet;
    this.#timeoutMs = timeoutMs;
    this.#timer = setInterval(() => this.#lookAtAll(), intervalMs);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #lookAtAll(): void {
    // The ranks of an engine are told with one answer.
    const ranks = new Map<string, Worker[]>();
    for (const worker of this.#fleet.workers) {
      // Its kind is known from its first good health check on.
      if (worker.engine === null || this.#asking.has(worker.engineUrl)) continue;
      const others = ranks.get(worker.engineUrl);
      if (others === undefined) ranks.set(worker.engineUrl, [worker]);
      else others.push(worker);
    }
    for (const workers of ranks.values()) void this.#look(workers);
  }

  async #look(workers: readonly Worker[]): Promise<void> {
    const [first] = workers as [Worker];
    this.#asking.add(first.engineUrl);
    const before = workers.map((worker) => this.#fleet.load(worker));
    const loads = await engines[first.engine!].readLoads(first.asker(this.#timeoutMs)).catch(() => null);
    this.#asking.delete(first.engineUrl);
    for (const [i, worker] of workers.entries()) {
      // Own requests that came or went in between must not look like others'.
      const own = Math.max(before[i]!, this.#fleet.load(worker));
      const reported = loads === null ? null : requestsAt(loads, worker.rank);
      worker.foreignLoad = reported === null ? 0 : Math.max(0, reported - own);
    }
  }
}

/** @param rank null: all ranks together */
function requestsAt(loads: readonly RankLoad[], rank: number | null): number | null {
  if (rank === null) return loads.reduce((sum, { requests }) => sum + requests, 0);
  // A node of a larger group may count its ranks from 0 where they are named, and over all nodes where they are measured.
  return (loads.find((load) => load.rank === rank) ?? loads[rank])?.requests ?? null;
}
