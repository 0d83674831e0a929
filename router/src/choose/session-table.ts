import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import type { StateMap } from './state.ts';

/** When a key was last used is known to this share of its time to live, so that few uses write anything. */
const GRAINS_PER_TTL = 16;

/** A worker as keys know it: by URL. What was kept over a restart may name workers that register later, or never. */
interface Home {
  readonly url: string;
  worker: Worker | null;
  /** Keys whose exchanges go there now. */
  keys: number;
}

interface Entry {
  /** Best first. */
  homes: readonly Home[];
  /** Where its last exchange went. */
  current: Home;
  /** When it was used last, to the grain. */
  seenMs: number;
  underWay: number;
}

export interface SessionTableOptions {
  /** A key without an exchange for so long is forgotten, at the latest a sixteenth of that later. */
  readonly ttlMs: number;
  /** Workers that are remembered for one key. */
  readonly homesPerKey: number;
  /** Beyond this many keys the one that was not used for longest is forgotten. */
  readonly maxKeys?: number;
}

/**
 * Which worker the exchanges of a key go to. It outlives the router through its state: `[seconds, url, …]` by key.
 *
 * Times are milliseconds of the wall clock, since they are compared with those of an earlier process.
 */
export class SessionTable {
  readonly #stopListening: () => void;
  readonly #state: StateMap;
  readonly #ttlMs: number;
  readonly #grainMs: number;
  readonly #homesPerKey: number;
  readonly #maxKeys: number;
  /** By `seenMs`: the first one is the first to go. */
  readonly #entries = new Map<string, Entry>();
  readonly #homes = new Map<string, Home>();

  constructor(fleet: Fleet, state: StateMap, options: SessionTableOptions, nowMs: number) {
    this.#state = state;
    this.#ttlMs = options.ttlMs;
    this.#grainMs = options.ttlMs / GRAINS_PER_TTL;
    this.#homesPerKey = options.homesPerKey;
    this.#maxKeys = options.maxKeys ?? 1_000_000;
    this.#load(nowMs);
    for (const worker of fleet.workers) this.#homeOf(worker.url).worker = worker;
    this.#stopListening = fleet.onEvent((event, worker) => {
      if (event === 'added') this.#homeOf(worker.url).worker = worker;
      else if (event === 'removed') this.#forgetHome(worker.url);
    });
  }

  get size(): number {
    return this.#entries.size;
  }

  /** How many keys have their exchanges at the worker. */
  keysAt(worker: Worker): number {
    return this.#homes.get(worker.url)?.keys ?? 0;
  }

  /** The worker that the key's exchanges went to last, if that is in the fleet. */
  find(key: string): Worker | null {
    return this.#entries.get(key)?.current.worker ?? null;
  }

  /** The best of the key's homes among `workers`; when none is, or the key is new, what `assign` says, from now on. */
  place(key: string, workers: readonly Worker[], nowMs: number, assign: () => Worker): Worker {
    this.forgetIdle(nowMs);
    const entry = this.#entries.get(key);
    if (entry !== undefined) {
      for (const home of entry.homes) {
        if (home.worker === null || !workers.includes(home.worker)) continue;
        this.#move(entry, home);
        this.#see(key, entry, nowMs);
        return home.worker;
      }
    }
    const worker = assign();
    const home = this.#homeOf(worker.url);
    if (entry === undefined) {
      const newcomer: Entry = { homes: [home], current: home, seenMs: nowMs, underWay: 0 };
      home.keys++;
      this.#entries.set(key, newcomer);
      this.#save(key, newcomer);
      if (this.#entries.size > this.#maxKeys) this.#forgetFirst();
    } else {
      entry.homes = [...entry.homes, home].slice(-this.#homesPerKey);
      this.#move(entry, home);
      // It is written for its new home: as well with the time.
      this.#see(key, entry, nowMs, 0);
    }
    return worker;
  }

  /** An exchange of the key is under way: the key is kept until it ends. */
  begun(key: string): void {
    const entry = this.#entries.get(key);
    if (entry !== undefined) entry.underWay++;
  }

  ended(key: string, nowMs: number): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    // The key may have been forgotten and come again since.
    if (entry.underWay > 0) entry.underWay--;
    this.#see(key, entry, nowMs);
  }

  /** @returns whether it was known. */
  forget(key: string): boolean {
    const entry = this.#entries.get(key);
    if (entry === undefined) return false;
    entry.current.keys--;
    this.#entries.delete(key);
    this.#state.delete(key);
    return true;
  }

  /** Forgets the keys whose time is over. */
  forgetIdle(nowMs: number): void {
    const beforeMs = nowMs - this.#ttlMs - this.#grainMs;
    for (const [key, entry] of this.#entries) {
      if (entry.seenMs > beforeMs) return;
      if (entry.underWay > 0) this.#see(key, entry, nowMs);
      else this.forget(key);
    }
  }

  /** Another table may use the state from now on: what ends later is not written any more. */
  close(): void {
    this.#stopListening();
    this.#entries.clear();
  }

  /** How many keys each worker has, by URL; also those of workers that are not there yet. */
  counts(): Record<string, number> {
    return Object.fromEntries([...this.#homes.values()].map(({ url, keys }) => [url, keys]));
  }

  /** What an earlier process left. */
  #load(nowMs: number): void {
    const entries: [string, Entry][] = [];
    for (const [key, text] of this.#state.entries()) {
      const kept = readKept(text);
      if (kept === null) {
        this.#state.delete(key);
        continue;
      }
      const homes = kept.urls.slice(0, this.#homesPerKey).map((url) => this.#homeOf(url));
      const current = homes[0]!;
      current.keys++;
      // A clock that was set back must not make it live for ever.
      entries.push([key, { homes, current, seenMs: Math.min(kept.seenMs, nowMs), underWay: 0 }]);
    }
    entries.sort(([, a], [, b]) => a.seenMs - b.seenMs);
    for (const [key, entry] of entries) this.#entries.set(key, entry);
    this.forgetIdle(nowMs);
    while (this.#entries.size > this.#maxKeys) this.#forgetFirst();
  }

  #homeOf(url: string): Home {
    let home = this.#homes.get(url);
    if (home === undefined) this.#homes.set(url, (home = { url, worker: null, keys: 0 }));
    return home;
  }

  #move(entry: Entry, home: Home): void {
    if (entry.current === home) return;
    entry.current.keys--;
    home.keys++;
    entry.current = home;
  }

  /** It is used now: noted when the last note is older than `grainMs`. */
  #see(key: string, entry: Entry, nowMs: number, grainMs = this.#grainMs): void {
    if (nowMs - entry.seenMs < grainMs) return;
    entry.seenMs = nowMs;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    this.#save(key, entry);
  }

  #save(key: string, entry: Entry): void {
    this.#state.set(key, JSON.stringify([Math.round(entry.seenMs / 1_000), ...entry.homes.map(({ url }) => url)]));
  }

  #forgetFirst(): void {
    for (const key of this.#entries.keys()) {
      this.forget(key);
      return;
    }
  }

  #forgetHome(url: string): void {
    const gone = this.#homes.get(url);
    if (gone === undefined) return;
    for (const [key, entry] of this.#entries) {
      if (!entry.homes.includes(gone)) continue;
      const homes = entry.homes.filter((home) => home !== gone);
      if (homes.length === 0) {
        this.forget(key);
        continue;
      }
      entry.homes = homes;
      if (entry.current === gone) this.#move(entry, homes[0]!);
      this.#save(key, entry);
    }
    this.#homes.delete(url);
  }
}

/** null: not what was written. */
function readKept(text: string): { seenMs: number; urls: string[] } | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (!Array.isArray(value)) return null;
  const [seconds, ...urls] = value as unknown[];
  if (typeof seconds !== 'number' || urls.length === 0) return null;
  return urls.every((url) => typeof url === 'string') ? { seenMs: seconds * 1_000, urls } : null;
}
