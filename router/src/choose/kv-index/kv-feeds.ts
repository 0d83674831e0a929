import type { Config } from '../../config/options.ts';
import type { KvEvent } from '../../engines/kv-events.ts';
import type { KvEventFeed, openKvEventFeed } from '../../engines/kv-events-feed.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Worker } from '../../fleet/worker.ts';
import { eventEndpoints } from './event-endpoints.ts';
import type { KvIndex } from './kv-index.ts';

/** As `openKvEventFeed`, for tests. */
export type OpenFeed = (
  options: Parameters<typeof openKvEventFeed>[0],
  listener: Parameters<typeof openKvEventFeed>[1],
) => Promise<Pick<KvEventFeed, 'isConnected' | 'counts' | 'close'> | string>;

interface Heard {
  readonly endpoint: string;
  feed: Awaited<ReturnType<OpenFeed>> | null;
  isReported: boolean;
}

/** Adapter names that are remembered: trainers make a new one at every step. */
const MAX_LORAS = 10_000;

/** Receives the events of every worker of the fleet and keeps the index up to date. */
export class KvFeeds {
  readonly #index: KvIndex;
  readonly #endpointsOf: ReturnType<typeof eventEndpoints>;
  readonly #open: OpenFeed;
  readonly #warn: (line: string) => void;
  readonly #loras = new Set<string>();
  readonly #heard = new Map<Worker, Heard>();
  readonly #stopListening: () => void;

  constructor(fleet: Fleet, index: KvIndex, options: Config, open: OpenFeed, warn: (line: string) => void) {
    this.#index = index;
    this.#endpointsOf = eventEndpoints(options);
    this.#open = open;
    this.#warn = warn;
    for (const worker of fleet.workers) void this.#listen(worker);
    this.#stopListening = fleet.onEvent((event, worker) => {
      if (event === 'added') void this.#listen(worker);
      else if (event === 'removed') this.#leave(worker);
    });
  }

  /** Whether engines report that model as an adapter, which shares no cached block with the base model. */
  isLora(model: string): boolean {
    return this.#loras.has(model);
  }

  /** A worker that serves requests but sends no events is logged once. */
  serves(worker: Worker): void {
    const heard = this.#heard.get(worker);
    if (heard === undefined || heard.isReported || heard.feed === null || typeof heard.feed === 'string') return;
    if (heard.feed.isConnected || heard.feed.counts.batches > 0) return;
    heard.isReported = true;
    this.#warn(
      `worker ${worker.url} is healthy, but its KV event endpoint ${heard.endpoint} does not answer: is the engine started with --kv-events-config?`,
    );
  }

  stateOf(worker: Worker): { isConnected: boolean; losses: number; badFrames: number } {
    const feed = this.#heard.get(worker)?.feed ?? null;
    if (feed === null || typeof feed === 'string') return { isConnected: false, losses: 0, badFrames: 0 };
    const { isConnected, counts } = feed;
    return { isConnected, losses: counts.losses, badFrames: counts.badFrames };
  }

  close(): void {
    this.#stopListening();
    for (const worker of this.#heard.keys()) this.#leave(worker);
  }

  async #listen(worker: Worker): Promise<void> {
    const endpoints = this.#endpointsOf(worker.url);
    const heard: Heard = { endpoint: endpoints.endpoint, feed: null, isReported: false };
    this.#heard.set(worker, heard);
    // A worker that is removed at once is not connected to.
    await Promise.resolve();
    const isOurs = (): boolean => this.#heard.get(worker) === heard;
    if (!isOurs()) return;
    const lose = (why: string): void => {
      this.#index.drop(worker.slot);
      this.#warn(`worker ${worker.url}: the state of its KV cache is lost: ${why}`);
    };
    try {
      heard.feed = await this.#open(endpoints, {
        onEvents: (events) => {
          if (!isOurs()) return;
          try {
            for (const event of events) this.#take(worker, event);
          } catch (error) {
            // Out of memory: only the state of this cache is lost.
            lose((error as Error).message);
          }
        },
        onLost: (why) => {
          if (isOurs()) lose(why);
        },
      });
    } catch (error) {
      heard.feed = `no KV cache events from ${heard.endpoint}: ${(error as Error).message}.`;
    }
    if (typeof heard.feed === 'string') this.#warn(`worker ${worker.url}: ${heard.feed}`);
    else if (!isOurs()) await heard.feed.close();
  }

  #take(worker: Worker, event: KvEvent): void {
    this.#index.apply(worker.slot, event);
    if (event.type !== 'stored' || event.lora === null || this.#loras.has(event.lora)) return;
    this.#loras.add(event.lora);
    const [oldest] = this.#loras;
    if (this.#loras.size > MAX_LORAS) this.#loras.delete(oldest!);
  }

  #leave(worker: Worker): void {
    const heard = this.#heard.get(worker);
    this.#heard.delete(worker);
    this.#index.drop(worker.slot);
    if (heard !== undefined && heard.feed !== null && typeof heard.feed !== 'string') void heard.feed.close();
  }
}
