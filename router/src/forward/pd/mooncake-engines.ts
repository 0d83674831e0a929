import { ask, askJson } from '../../engines/ask.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { CoarseClock } from '../../kit/clock.ts';

/** Where vLLM's MooncakeConnector (0.32.0) opens its bootstrap server unless it is told another port. */
const DEFAULT_PORT = 8_998;
/** An engine that is started again has a new id, and needs longer than this to start. */
const TRUSTED_MS = 5_000;
const PATIENCE_MS = 3_000;

/** Ids of prefill engines: made anew by each start of one, told by its bootstrap server, and asked for by decode engines. */
export class MooncakeEngines {
  readonly #clock: CoarseClock;
  readonly #known = new WeakMap<Worker, { readonly id: string; readonly atMs: number }>();
  readonly #asked = new WeakMap<Worker, Promise<string | null>>();

  constructor(clock: CoarseClock) {
    this.#clock = clock;
  }

  addressOf({ host, bootstrapPort }: Worker): string {
    return `http://${host.includes(':') ? `[${host}]` : host}:${bootstrapPort ?? DEFAULT_PORT}`;
  }

  /** At once while it is known; null: it does not say. */
  idOf(worker: Worker): string | Promise<string | null> {
    const known = this.#known.get(worker);
    if (known !== undefined && this.#clock.nowMs - known.atMs < TRUSTED_MS) return known.id;
    let asked = this.#asked.get(worker);
    if (asked === undefined) {
      asked = this.#ask(worker).finally(() => this.#asked.delete(worker));
      this.#asked.set(worker, asked);
    }
    return asked;
  }

  async #ask(worker: Worker): Promise<string | null> {
    const { host, bootstrapPort, rank } = worker;
    const { lookup } = worker.pool.endpoint;
    const endpoint = { host, port: bootstrapPort ?? DEFAULT_PORT, isTls: false, tls: null, lookup };
    // The id of each data-parallel rank: {"0": {"engine_id": …}}.
    const ranks = await askJson((path) => ask(endpoint, path, PATIENCE_MS), '/query');
    const entries = Object.values(ranks ?? {});
    // Which of several ranks an engine takes for a request is not known beforehand.
    const entry = rank === null ? (entries.length === 1 ? entries[0] : undefined) : ranks?.[rank];
    const id = (entry as { engine_id?: unknown } | undefined)?.engine_id;
    if (typeof id !== 'string') return null;
    this.#known.set(worker, { id, atMs: this.#clock.nowMs });
    return id;
  }
}
