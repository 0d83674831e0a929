import { engines } from '../engines/engines.ts';
import type { RankLoad } from '../engines/engine.ts';
import type { Fleet } from './fleet.ts';
import type { Worker } from './worker.ts';

/** What a worker's engine reports of its load, by rank; null: nothing, or its kind is not known before its first passed health check. */
export const readLoads = async (worker: Worker, timeoutMs: number): Promise<readonly RankLoad[] | null> =>
  worker.engine === null ? null : engines[worker.engine].readLoads(worker.asker(timeoutMs)).catch(() => null);

/** Of one rank, or of all ranks of the engine together; null: not known. */
export function loadAt(loads: readonly RankLoad[] | null, rank: number | null): Omit<RankLoad, 'rank'> | null {
  if (loads === null) return null;
  // In a multi-node group, ranks may be named from 0 per node and measured over all nodes.
  if (rank !== null) return loads.find((load) => load.rank === rank) ?? loads[rank] ?? null;
  const sum = (what: 'requests' | 'waiting' | 'shown'): number => loads.reduce((total, load) => total + load[what], 0);
  const uses = loads.flatMap(({ kvUse }) => kvUse ?? []);
  const kvUse = uses.length === 0 ? null : uses.reduce((total, use) => total + use, 0) / uses.length;
  return { requests: sum('requests'), waiting: sum('waiting'), shown: sum('shown'), kvUse };
}

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
  #isClosed = false;

  constructor(fleet: Fleet, intervalMs: number, timeoutMs: number) {
    this.#fleet = fleet;
    this.#timeoutMs = timeoutMs;
    this.#timer = setInterval(() => this.#lookAtAll(), intervalMs);
  }

  close(): void {
    this.#isClosed = true;
    clearInterval(this.#timer);
  }

  #lookAtAll(): void {
    // One answer covers all ranks of an engine.
    const byEngine = Map.groupBy(this.#fleet.workers, ({ engineUrl }) => engineUrl);
    for (const [url, ranks] of byEngine) if (!this.#asking.has(url)) void this.#look(ranks);
  }

  async #look(ranks: readonly Worker[]): Promise<void> {
    const [first] = ranks as [Worker];
    this.#asking.add(first.engineUrl);
    const before = ranks.map((worker) => this.#fleet.load(worker));
    const loads = await readLoads(first, this.#timeoutMs);
    this.#asking.delete(first.engineUrl);
    if (this.#isClosed) return;
    for (const [i, worker] of ranks.entries()) {
      // Own requests that began or ended in between must not count as those of others.
      const own = Math.max(before[i]!, this.#fleet.load(worker));
      worker.foreignLoad = Math.max(0, (loadAt(loads, worker.rank)?.requests ?? 0) - own);
    }
  }
}

/** Asks the engine of each worker for its load, in the unit that other routers show. @returns -1 if unknown */
export async function shownLoads(workers: readonly Worker[], timeoutMs: number): Promise<number[]> {
  const asked = new Map<string, ReturnType<typeof readLoads>>();
  for (const worker of workers)
    if (!asked.has(worker.engineUrl)) asked.set(worker.engineUrl, readLoads(worker, timeoutMs));
  return Promise.all(
    workers.map(async ({ engineUrl, rank }) => loadAt((await asked.get(engineUrl))!, rank)?.shown ?? -1),
  );
}
