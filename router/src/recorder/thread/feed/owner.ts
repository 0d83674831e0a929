import { setTimeout as delay } from 'node:timers/promises';
import type { RecordTables } from '../store/records.ts';
import { feedNow } from './feed-clock.ts';

/** How often the owner says that it is there. */
const BEAT_MS = 2_000;
/** An owner that was silent for so long has ended. */
const GONE_MS = 3 * BEAT_MS;

interface Claim {
  readonly owner: string;
  readonly atMs: number;
}

/** The one router that a feed in a shared store belongs to: two would deliver each group twice. */
export class Owner {
  readonly #records: RecordTables;
  readonly #table: string;
  readonly #name: string;
  #nextMs = 0;

  /** @param name of this router, the same after a restart */
  constructor(records: RecordTables, table: string, name: string) {
    this.#records = records;
    this.#table = table;
    this.#name = name;
  }

  /** Takes the feed over from a router that has ended. Rejects where another router has it. */
  async claim(): Promise<void> {
    const first = await this.#read();
    for (let now = first; now !== null && now.owner !== this.#name; now = await this.#read()) {
      if (feedNow() - now.atMs > GONE_MS) break;
      if (now.atMs !== first?.atMs)
        throw new Error(
          `the router ${now.owner} has this feed: give each router that shares the store a feed of its own (the option "name" of the plugin feed)`,
        );
      await delay(BEAT_MS / 4);
    }
    await this.#write();
  }

  /** The router stops: another one need not wait. */
  async release(): Promise<void> {
    await this.#records.write([{ table: this.#table, key: 'owner', value: null }], feedNow());
  }

  async beat(nowMs: number): Promise<void> {
    if (nowMs < this.#nextMs) return;
    this.#nextMs = nowMs + BEAT_MS;
    await this.#write();
  }

  async #read(): Promise<Claim | null> {
    const json = await this.#records.get(this.#table, 'owner');
    return json === null ? null : (JSON.parse(json) as Claim);
  }

  async #write(): Promise<void> {
    const claim: Claim = { owner: this.#name, atMs: feedNow() };
    await this.#records.write([{ table: this.#table, key: 'owner', value: JSON.stringify(claim) }], claim.atMs);
  }
}
