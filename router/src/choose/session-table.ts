import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import { LinkedList, type ListNode } from '../kit/linked-list.ts';
import type { StateMap } from './state.ts';

/**
 * The time of a key's last use is kept with a resolution of this share of the time to live, so that few uses cause a
 * write.
 */
const GRAINS_PER_TTL = 16;

/** A worker, identified by its URL: saved state may name workers that register later, or never. */
interface Home {
  readonly url: string;
  worker: Worker | null;
  /** Keys whose requests go there now. */
  keys: number;
  /** All that have it among their homes. (Workers leave many at a time: each may cost its own keys only.) */
  readonly entries: Set<Entry>;
}

interface Entry {
  readonly key: string;
  /** Best first. */
  homes: readonly Home[];
  /** Where the last request went. */
  current: Home;
  /** When the key was last used, to the resolution above. */
  seenMs: number;
  /** That time by the wall clock, as it was saved. */
  savedMs: number;
  inFlight: number;
  /** Its place in the order of `seenMs`. */
  link: ListNode<Entry> | null;
}

export interface SessionTableOptions {
  /** A key without a request for this long is forgotten, at the latest a sixteenth of that time later. */
  readonly ttlMs: number;
  /** Workers that are remembered per key. */
  readonly homesPerKey: number;
  /** Beyond this many keys the one that was unused for longest is forgotten. */
  readonly maxKeys?: number;
}

/**
 * Which worker the requests of a key go to. It outlives the router through its state: `[seconds, url, …]` by key.
 *
 * Times are monotonic milliseconds. Saved are seconds of the wall clock, because a later process reads them. The wall clock may be set and the
 * monotonic one may pause while the machine is suspended, so each saved time is computed from both as they are when it is saved.
 */
export class SessionTable {
  readonly #stopListening: () => void;
  readonly #state: StateMap;
  readonly #ttlMs: number;
  readonly #grainMs: number;
  readonly #homesPerKey: number;
  readonly #maxKeys: number;
  readonly #nowMs: () => number;
  readonly #unixMs: () => number;
  readonly #entries = new Map<string, Entry>();
  /** By `seenMs`, oldest first. (The first entry of a Map is slow to find after others before it were removed.) */
  readonly #order = new LinkedList<Entry>();
  readonly #homes = new Map<string, Home>();
  /** Keys of the saved state that this table does not have. */
  #outdated: string[] = [];

  constructor(
    fleet: Fleet,
    state: StateMap,
    options: SessionTableOptions,
    nowMs: () => number,
    unixMs: () => number = Date.now,
  ) {
    this.#state = state;
    this.#ttlMs = options.ttlMs;
    this.#grainMs = options.ttlMs / GRAINS_PER_TTL;
    this.#homesPerKey = options.homesPerKey;
    this.#maxKeys = options.maxKeys ?? 1_000_000;
    this.#nowMs = nowMs;
    this.#unixMs = unixMs;
    this.#load();
    for (const worker of fleet.workers) this.#homeOf(worker.url).worker = worker;
    this.#stopListening = fleet.onEvent((event, worker) => {
      if (event === 'added') this.#homeOf(worker.url).worker = worker;
      else if (event === 'removed') this.#forgetHome(worker.url);
    });
  }

  get size(): number {
    return this.#entries.size;
  }

  keysAt(worker: Worker): number {
    return this.#homes.get(worker.url)?.keys ?? 0;
  }

  /** The worker of the key's last request, if it is in the fleet. */
  find(key: string): Worker | null {
    return this.#entries.get(key)?.current.worker ?? null;
  }

  /** The best of the key's homes among `workers`. Without one, the worker that `assign` returns becomes a home. */
  place(key: string, workers: readonly Worker[], nowMs: number, assign: () => Worker): Worker {
    if (this.#outdated.length > 0) this.#deleteOutdated();
    this.forgetIdle(nowMs);
    const entry = this.#entries.get(key);
    if (entry !== undefined) {
      for (const home of entry.homes) {
        if (home.worker === null || !workers.includes(home.worker)) continue;
        this.#move(entry, home);
        this.#see(entry, nowMs);
        return home.worker;
      }
    }
    const worker = assign();
    const home = this.#homeOf(worker.url);
    if (entry === undefined) {
      this.#save(this.#add({ key, homes: [home], current: home, seenMs: nowMs, savedMs: 0, inFlight: 0, link: null }));
      if (this.#entries.size > this.#maxKeys) this.#forgetFirst();
    } else {
      const homes = [...entry.homes, home];
      for (const dropped of homes.splice(0, homes.length - this.#homesPerKey)) dropped.entries.delete(entry);
      entry.homes = homes;
      home.entries.add(entry);
      this.#move(entry, home);
      // The entry is written anyway for its new home, so the time is written as well.
      this.#see(entry, nowMs, 0);
    }
    return worker;
  }

  /** A request of the key is in flight, which keeps the key until the request ends. */
  begun(key: string): void {
    const entry = this.#entries.get(key);
    if (entry !== undefined) entry.inFlight++;
  }

  ended(key: string, nowMs: number): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    // The key may have been forgotten and created again since then.
    if (entry.inFlight > 0) entry.inFlight--;
    this.#see(entry, nowMs);
  }

  /** @returns whether the key was known */
  forget(key: string): boolean {
    const entry = this.#entries.get(key);
    if (entry === undefined) return false;
    entry.current.keys--;
    for (const home of entry.homes) home.entries.delete(entry);
    this.#entries.delete(key);
    this.#order.remove(entry.link!);
    this.#state.delete(key);
    return true;
  }

  forgetIdle(nowMs: number): void {
    for (const entry of this.#order) {
      if (!this.#isIdle(entry, nowMs)) return;
      if (entry.inFlight > 0) this.#see(entry, nowMs);
      else this.forget(entry.key);
    }
  }

  /** Another table may use the state from now on, so this one must not write any more. */
  close(): void {
    this.#stopListening();
    this.#outdated = [];
    this.#entries.clear();
    this.#homes.clear();
    while (this.#order.first !== null) this.#order.remove(this.#order.first);
  }

  /** Keys per worker, by URL, including workers that have not registered. */
  counts(): Record<string, number> {
    return Object.fromEntries([...this.#homes.values()].map(({ url, keys }) => [url, keys]));
  }

  /**
   * Loads what an earlier process saved, or the table that is in use during a reload. The state does not change before this table is used,
   * because a reload that is refused leaves it to the other one.
   */
  #load(): void {
    const nowMs = this.#nowMs();
    const aheadMs = this.#aheadMs();
    const saved: (Pick<Entry, 'key' | 'seenMs' | 'savedMs'> & { urls: string[] })[] = [];
    for (const [key, text] of this.#state.entries()) {
      const kept = readKept(text);
      if (kept === null) this.#outdated.push(key);
      // After the clock was set back, a time in the future would keep the key forever.
      else saved.push({ key, urls: kept.urls, seenMs: Math.min(kept.unixMs - aheadMs, nowMs), savedMs: kept.unixMs });
    }
    saved.sort((a, b) => a.seenMs - b.seenMs);
    for (const [i, { key, urls, seenMs, savedMs }] of saved.entries()) {
      if (i < saved.length - this.#maxKeys || this.#isIdle({ seenMs }, nowMs)) {
        this.#outdated.push(key);
        continue;
      }
      const homes = urls.slice(0, this.#homesPerKey).map((url) => this.#homeOf(url));
      this.#add({ key, homes, current: homes[0]!, seenMs, savedMs, inFlight: 0, link: null });
    }
  }

  #deleteOutdated(): void {
    for (const key of this.#outdated) this.#state.delete(key);
    this.#outdated = [];
  }

  /** By how much the wall clock is ahead of the monotonic one. */
  #aheadMs(): number {
    return this.#unixMs() - this.#nowMs();
  }

  #isIdle({ seenMs }: Pick<Entry, 'seenMs'>, nowMs: number): boolean {
    return seenMs <= nowMs - this.#ttlMs - this.#grainMs;
  }

  #homeOf(url: string): Home {
    let home = this.#homes.get(url);
    if (home === undefined) this.#homes.set(url, (home = { url, worker: null, keys: 0, entries: new Set() }));
    return home;
  }

  #move(entry: Entry, home: Home): void {
    if (entry.current === home) return;
    entry.current.keys--;
    home.keys++;
    entry.current = home;
  }

  /** The key was used now. Written only if the last written time is older than `grainMs`, by either clock, or in the future. */
  #see(entry: Entry, nowMs: number, grainMs = this.#grainMs): void {
    const savedAgoMs = nowMs + this.#aheadMs() - entry.savedMs;
    if (nowMs - entry.seenMs < grainMs && Math.abs(savedAgoMs) < grainMs) return;
    entry.seenMs = nowMs;
    const { last } = this.#order;
    if (entry.link !== last) this.#order.move(entry.link!, last);
    this.#save(entry);
  }

  #add(entry: Entry): Entry {
    entry.current.keys++;
    for (const home of entry.homes) home.entries.add(entry);
    this.#entries.set(entry.key, entry);
    entry.link = this.#order.push(entry);
    return entry;
  }

  #save(entry: Entry): void {
    entry.savedMs = entry.seenMs + this.#aheadMs();
    const urls = entry.homes.map(({ url }) => url);
    this.#state.set(entry.key, JSON.stringify([Math.round(entry.savedMs / 1_000), ...urls]));
  }

  #forgetFirst(): void {
    const { first } = this.#order;
    if (first !== null) this.forget(first.value.key);
  }

  #forgetHome(url: string): void {
    const gone = this.#homes.get(url);
    if (gone === undefined) return;
    for (const entry of gone.entries) {
      const homes = entry.homes.filter((home) => home !== gone);
      if (homes.length === 0) {
        this.forget(entry.key);
        continue;
      }
      entry.homes = homes;
      if (entry.current === gone) this.#move(entry, homes[0]!);
      this.#save(entry);
    }
    this.#homes.delete(url);
  }
}

/** @returns null if the text was not written by this table */
function readKept(text: string): { unixMs: number; urls: string[] } | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (!Array.isArray(value)) return null;
  const [seconds, ...urls] = value as unknown[];
  if (typeof seconds !== 'number' || urls.length === 0) return null;
  return urls.every((url) => typeof url === 'string') ? { unixMs: seconds * 1_000, urls } : null;
}
