import { engines } from '../engines/engines.ts';
import type { RankLoad } from '../engines/engine.ts';
import type { Fleet } from './fleet.ts';
import type { Worker } from './worker.ts';

/**
 * Asks engines for their number of requests, so that those of other routers and clients count too: what exceeds this
 * router's own is `worker.foreignLoad`. It stays 0 for an engine that does not report it.
 */
export class LoadWatch {
  readonly #fleet: Fleet;
  readonly #timeoutMs: number;
  readonly #timer: NodeJS.Timeout;
  /** URLs of engines with a question in progress. */
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
    // One answer covers all ranks of an engine.
    const ranks = new Map<string, Worker[]>();
    for (const worker of this.#fleet.workers) {
      // The kind is known after the first passed health check.
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
      // Own requests that began or ended in between must not count as those of others.
      const own = Math.max(before[i]!, this.#fleet.load(worker));
      const reported = loads === null ? null : sumAt(loads, worker.rank, 'requests');
      worker.foreignLoad = reported === null ? 0 : Math.max(0, reported - own);
    }
  }
}

/** Asks the engine of each worker for its load, in the unit that other routers show. @returns -1 if unknown */
export async function shownLoads(workers: readonly Worker[], timeoutMs: number): Promise<number[]> {
  const byEngine = Map.groupBy(workers, ({ engineUrl }) => engineUrl);
  const shown = new Map<Worker, number>();
  await Promise.all(
    Array.from(byEngine.values(), async (ranks) => {
      const [first] = ranks as [Worker];
      const loads = first.engine === null ? null : await engines[first.engine].readLoads(first.asker(timeoutMs));
      for (const worker of ranks) shown.set(worker, loads === null ? -1 : (sumAt(loads, worker.rank, 'shown') ?? -1));
    }),
  );
  return workers.map((worker) => shown.get(worker)!);
}

/** @param rank null for the sum of all ranks */
function sumAt(loads: readonly RankLoad[], rank: number | null, what: 'requests' | 'shown'): number | null {
  if (rank === null) return loads.reduce((sum, load) => sum + load[what], 0);
  // In a multi-node group, ranks may be named from 0 per node and measured over all nodes.
  return (loads.find((load) => load.rank === rank) ?? loads[rank])?.[what] ?? null;
}
