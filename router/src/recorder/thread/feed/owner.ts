import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { isRunning } from '../../../config/folder-owner.ts';
import { type ProcessName, isSamePlace, thisProcess } from '../../../config/process-name.ts';
import type { RecordTables } from '../store/records.ts';
import { feedNow } from './feed-clock.ts';

/** How often the owner says that it is there. */
const BEAT_MS = 2_000;
/** An owner that was silent for so long has ended. */
const GONE_MS = 3 * BEAT_MS;
const RELEASED = 0;
/** The time between the claims of routers that start at once. */
const START_MS = 100;

interface Claim {
  /** Random: no other owner has it. */
  readonly id: string;
  /** The name of the router. */
  readonly owner: string;
  /** Unix ms by the clock of its process, or `RELEASED`. */
  readonly atMs: number;
  readonly process?: ProcessName;
}

/** The one process that a feed belongs to: two would deliver each group twice. */
export class Owner {
  readonly #records: RecordTables;
  readonly #table: string;
  readonly #name: string;
  readonly #process: ProcessName;
  readonly #id = randomUUID();
  /** When this process last said that it is there. */
  #saidMs = 0;
  /** The router that has the feed in the place of this one, which was silent for too long, or did not get it; null: none has. */
  takenBy: string | null = null;

  /**
   * @param name of this router among those of its process
   * @param process left out: this one
   */
  constructor(records: RecordTables, table: string, name: string, process = thisProcess()) {
    this.#records = records;
    this.#table = table;
    this.#name = name;
    this.#process = process;
  }

  /** Takes the feed over from a router that has ended. Rejects where another router has it. */
  async claim(): Promise<void> {
    const first = await this.#read();
    const sinceMs = feedNow();
    let askedMs = sinceMs;
    for (let now = first; now !== null && !this.#isOurs(now) && !this.#hasEnded(now); now = await this.#read()) {
      // The clock of another machine may be wrong: only a claim that changes shows that its owner is there.
      if (now.atMs !== first?.atMs) this.#refuse(now);
      // Not when the store answered: while it is away the owner can't write either.
      if (askedMs - sinceMs > GONE_MS) break;
      await delay(BEAT_MS / 4);
      askedMs = feedNow();
    }
    await this.#write();
    // Of routers that start at once the last one has it.
    await delay(START_MS);
    const last = await this.#read();
    if (last !== null && !this.#isOurs(last)) this.#refuse(last);
  }

  /** The router stops: another one need not wait. One that was silent for long sees by this claim that the feed was taken over. */
  async release(): Promise<void> {
    const now = await this.#read();
    if (now === null || !this.#isOurs(now)) return;
    await this.#put({ ...now, atMs: RELEASED });
  }

  /** Rejects where another router has taken the feed over. */
  async beat(nowMs: number): Promise<void> {
    this.requireHeld();
    if (nowMs - this.#saidMs < BEAT_MS) return;
    const now = await this.#read();
    this.takenBy = now === null || this.#isOurs(now) ? null : now.owner;
    this.requireHeld();
    await this.#write();
  }

  requireHeld(): void {
    if (this.takenBy !== null) throw new Error(`the router ${this.takenBy} has taken this feed over`);
  }

  /** The records, for what the owner writes: after a time in which another router could take the feed over it looks first. */
  guarded(records: RecordTables): RecordTables {
    return {
      isShared: records.isShared,
      all: (table) => records.all(table),
      get: (table, key) => records.get(table, key),
      prune: (table, beforeMs) => records.prune(table, beforeMs),
      write: async (changes, nowMs) => {
        if (feedNow() - this.#saidMs >= GONE_MS) await this.beat(feedNow());
        this.requireHeld();
        await records.write(changes, nowMs);
      },
    };
  }

  #isOurs({ id }: Claim): boolean {
    return id === this.#id;
  }

  /** It is known to have ended: nothing needs to be waited for after a kill. */
  #hasEnded({ owner, atMs, process: its }: Claim): boolean {
    if (atMs === RELEASED) return true;
    if (its === undefined || !isSamePlace(its, this.#process)) return false;
    // The thread of this process that had it, or a process before it with the same id.
    if (its.pid === this.#process.pid) return owner === this.#name;
    return !isRunning(its.pid);
  }

  #refuse({ owner }: Claim): never {
    this.takenBy = owner;
    throw new Error(
      `the router ${owner} has this feed: end it first, or give each router that shares the store a feed of its own (the option "name" of the plugin feed)`,
    );
  }

  async #read(): Promise<Claim | null> {
    const json = await this.#records.get(this.#table, 'owner');
    try {
      return json === null ? null : (JSON.parse(json) as Claim);
    } catch {
      // A damaged claim keeps no router from the feed: an owner that runs sees that another one has it.
      return null;
    }
  }

  async #write(): Promise<void> {
    const atMs = feedNow();
    await this.#put({ id: this.#id, owner: this.#name, atMs, process: this.#process });
    this.#saidMs = atMs;
  }

  async #put(claim: Claim): Promise<void> {
    await this.#records.write([{ table: this.#table, key: 'owner', value: JSON.stringify(claim) }], feedNow());
  }
}
