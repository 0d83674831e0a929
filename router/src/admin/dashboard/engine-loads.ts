import type { RankLoad } from '../../engines/engine.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import { loadAt, readLoads } from '../../fleet/load-watch.ts';
import type { Worker } from '../../fleet/worker.ts';

/** Engines that are asked in a second: a few hundred engines are asked once a minute, eight each second. */
const ENGINES_PER_SECOND = 8;

/** What engines report of their load, asked in turn while a page is open. */
export class EngineLoads {
  readonly #fleet: Fleet;
  readonly #timeoutMs: () => number;
  readonly #loads = new Map<string, readonly RankLoad[] | null>();
  /** URLs of engines with a question in progress. */
  readonly #asking = new Set<string>();
  #next = 0;

  constructor(fleet: Fleet, timeoutMs: () => number) {
    this.#fleet = fleet;
    this.#timeoutMs = timeoutMs;
  }

  /** The load of this rank, or of all ranks of its engine; null: not known. */
  of({ engineUrl, rank }: Worker): ReturnType<typeof loadAt> {
    const loads = this.#loads.get(engineUrl) ?? [];
    return loads.length === 0 ? null : loadAt(loads, rank);
  }

  /** Asks the next engines. */
  ask(): void {
    const byUrl = Map.groupBy(this.#fleet.workers, ({ engineUrl }) => engineUrl);
    for (const url of this.#loads.keys()) if (!byUrl.has(url)) this.#loads.delete(url);
    const all = [...byUrl.values()];
    for (let i = 0; i < Math.min(ENGINES_PER_SECOND, all.length); i++)
      void this.#ask(all[this.#next++ % all.length]![0]!);
  }

  async #ask(worker: Worker): Promise<void> {
    const { engine, engineUrl } = worker;
    if (engine === null || this.#asking.has(engineUrl)) return;
    this.#asking.add(engineUrl);
    this.#loads.set(engineUrl, await readLoads(worker, this.#timeoutMs()));
    this.#asking.delete(engineUrl);
  }
}
