import { ask, askJson } from '../../engines/ask.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { CoarseClock } from '../../kit/clock.ts';

/** The default port of the bootstrap server of vLLM's MooncakeConnector (0.32.0). */
const DEFAULT_PORT = 8_998;
/** An engine has a new id after a restart, which takes longer than this. */
const TRUSTED_MS = 5_000;
const PATIENCE_MS = 3_000;

/** The ids of prefill engines, which their bootstrap servers report and decode engines need. An engine has a new one after each start. */
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

  /** Synchronously while it is known; null: the bootstrap server does not report it. */
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
    // The rank that an engine chooses for a request is not known in advance.
    const entry = rank === null ? (entries.length === 1 ? entries[0] : undefined) : ranks?.[rank];
    const id = (entry as { engine_id?: unknown } | undefined)?.engine_id;
    if (typeof id !== 'string') return null;
    this.#known.set(worker, { id, atMs: this.#clock.nowMs });
    return id;
  }
}
