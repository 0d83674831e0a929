import * as z from 'zod';
import type { StateMap } from '../choose/state.ts';
import type { NamespaceStep } from './namespaces.ts';

/** Which prompt caches a swap leaves to later requests: none, those of sessions that go on, or all. */
export type Reset = 'all' | 'new_session' | 'none';

const engine = z.object({
  stage: z.string(),
  error: z.string().nullable(),
  /** Milliseconds that each stage took. */
  phases: z.record(z.string(), z.number()),
  /** When its gate closed (Unix ms); not known of older swaps. */
  beganAt: z.number().optional(),
  /** How the engine named its weights before; null: not at all. Not known of older swaps. */
  name: z.string().nullable().optional(),
  /** When its process had been started, as it reports; null: it does not. Not known of older swaps. */
  start: z.string().nullable().optional(),
});

const entry = z.object({
  seq: z.int(),
  identity: z.string(),
  /** Where the engines find the weights; '': where each found those it started with; null: a trainer sent them. */
  path: z.string().nullable(),
  transition: z.enum(['async', 'sync']),
  reset: z.enum(['all', 'new_session', 'none']),
  mover: z.enum(['router', 'trainer']),
  startedAt: z.number(),
  endedAt: z.number().nullable(),
  /** An engine has loaded the weights. */
  hasLoaded: z.boolean(),
  /**
   * The identity of the whole weights of an engine that has the snapshot. Before one has loaded it: the whole weights of before, which stay under an
   * adapter. Not known of older swaps.
   */
  whole: z.string().optional(),
  isUndone: z.boolean(),
  namespace: z.string(),
  resetAllSeq: z.int(),
});

/** Where the ledger began, or was cleared: what engines have from then on stays known. */
const start = z.object({
  /** The number of the last swap of then; 0: there was none. */
  seq: z.int(),
  /** Of the last one that was loaded. Left out: engines have the weights that they were started with. */
  identity: z.string().optional(),
  whole: z.string().optional(),
  path: z.string().nullish(),
  /** Of the whole weights under an adapter. */
  wholePath: z.string().nullish(),
  namespace: z.string(),
  resetAllSeq: z.int(),
});

const signal = z.object({
  ...entry.pick({ identity: true, transition: true, reset: true, mover: true, whole: true }).shape,
  /** Where the engines find the weights, if not where the deployment says. */
  path: z.string().optional(),
  /** It takes the engines back to what they had before an undone swap. */
  undoes: z.literal(true).optional(),
});

/** A request for a swap. */
export type SwapSignal = z.output<typeof signal>;

export type EngineRecord = z.output<typeof engine>;

/** A swap in the ledger. It changes in place as it goes on. */
export interface LedgerEntry extends z.output<typeof entry> {
  /** By the engine's URL. Of older swaps they are forgotten. */
  readonly engines: Map<string, EngineRecord>;
  /** When it started, by the monotonic clock. */
  readonly beganMs: number;
}

/** What is noted of an engine beside swaps: where the weights of its start are, and names. */
const NOTES: readonly string[] = ['boot', 'kept', 'held'];
/** Older ones are forgotten. */
const MAX_ENTRIES = 4_096;
/** Older ones are kept without their engines. */
const MAX_DETAILED = 10;
/** Engines that have left and may come back: what is known of more is forgotten. */
const MAX_AWAY = 4_096;

/** The swaps of one set of workers, oldest first. With a data directory they survive the router. */
export class Ledger {
  readonly #state: StateMap;
  readonly #key: string;
  readonly #entries: LedgerEntry[] = [];
  /** Engines in the fleet. Both by URL. */
  readonly #present = new Set<string>();
  /** Engines that are not in the fleet, those that left longest ago first. */
  readonly #away = new Set<string>();
  #start: z.output<typeof start> = { seq: 0, namespace: '', resetAllSeq: 0 };
  #lastSeq = 0;

  constructor(state: StateMap, key: string) {
    this.#state = state;
    this.#key = key;
    const records = new Map<number, [url: string, json: string][]>();
    for (const [name, json] of state.entries()) {
      const [, seq, url] = name.startsWith(`${key}|`) ? name.split('|') : [];
      if (seq !== undefined && NOTES.includes(seq)) this.#away.add(url!);
      if (url !== undefined) records.set(Number(seq), [...(records.get(Number(seq)) ?? []), [url, json]]);
      const read = url === undefined && seq !== undefined ? entry.safeParse(parseJson(json)) : null;
      if (read?.success !== true) continue;
      const beganMs = performance.now() - Math.max(0, Date.now() - read.data.startedAt);
      this.#entries.push({ ...read.data, engines: new Map(), beganMs });
    }
    this.#entries.sort((a, b) => a.seq - b.seq);
    for (const { seq, engines } of this.#entries) {
      for (const [url, json] of records.get(seq) ?? []) {
        const read = engine.safeParse(parseJson(json));
        if (read.success) engines.set(url, read.data);
        this.#away.add(url);
      }
    }
    const cleared = start.safeParse(parseJson(state.get(`${key}|cleared`) ?? ''));
    if (cleared.success) this.#start = cleared.data;
    this.#lastSeq = Math.max(this.last?.seq ?? 0, this.#start.seq);
  }

  /** Before the first swap since then was loaded, this holds. */
  get start(): Readonly<z.output<typeof start>> {
    return this.#start;
  }

  get last(): LedgerEntry | null {
    return this.#entries.at(-1) ?? null;
  }

  /** The newest swap whose weights an engine has loaded; null: the fleet has the weights it was started with. */
  get current(): LedgerEntry | null {
    return this.#entries.findLast(({ hasLoaded }) => hasLoaded) ?? null;
  }

  /** The swap whose weights an engine must have that joins: the newest one, unless the engines failed to load it. */
  get wanted(): LedgerEntry | null {
    const { last } = this;
    // Several engines may join while the first of them still loads.
    const hasFailed = last !== null && [...last.engines.values()].some(({ stage }) => stage === 'error');
    return last !== null && last.mover === 'router' && !hasFailed && !last.isUndone ? last : this.current;
  }

  /** The newest swap of this identity. */
  find(identity: string): LedgerEntry | null {
    return this.#entries.findLast((each) => each.identity === identity) ?? null;
  }

  /** Where the engines found these weights; null: not known, or a trainer sent them. */
  pathOf(identity: string): string | null {
    const entry = this.find(identity);
    if (entry !== null) return entry.path;
    const { path, wholePath, whole } = this.#start;
    return (identity === this.#start.identity ? path : identity === whole ? wholePath : null) ?? null;
  }

  /** How many snapshots engines have loaded since one, up to another; 0 also where the ledger does not have one of them. */
  loadedBetween(from: string, to: string, baseIdentity: string): number {
    let loaded = 0;
    let afterTo = -1;
    let later: string | null = null;
    // A return to an earlier snapshot counts: the newest swap to each. Lags are short, so the walk is.
    for (let i = this.#entries.length - 1; i >= 0; i--) {
      const { identity, hasLoaded } = this.#entries[i]!;
      // It may have been signalled again for an engine that could not load it.
      if (!hasLoaded || identity === later) continue;
      later = identity;
      if (identity === to && afterTo < 0) afterTo = loaded;
      if (identity === from) return afterTo < 0 ? 0 : loaded - afterTo;
      loaded++;
    }
    const isBefore = from === baseIdentity || from === this.#start.identity;
    return isBefore && afterTo >= 0 ? loaded - afterTo : 0;
  }

  /** The newest swap before this one whose weights an engine has loaded. */
  before({ seq }: LedgerEntry): LedgerEntry | null {
    return this.#entries.findLast((each) => each.hasLoaded && each.seq < seq) ?? null;
  }

  /** Engines whose newest swap has neither ended nor failed there, by URL, with the stage of that swap. */
  unfinished(): Map<string, string> {
    const newest = new Map<string, EngineRecord>();
    for (const { engines } of this.#entries)
      for (const [url, record] of engines)
        // An engine that joins may be brought to the weights of an older swap than its last one.
        if ((record.beganAt ?? 0) >= (newest.get(url)?.beganAt ?? 0)) newest.set(url, record);
    const left = [...newest].filter(([, { stage }]) => stage !== 'done' && stage !== 'error');
    return new Map(left.map(([url, { stage }]) => [url, stage]));
  }

  /** An engine with this URL is in the fleet. */
  joined(url: string): void {
    this.#present.add(url);
    this.#away.delete(url);
  }

  left(url: string): void {
    this.#present.delete(url);
    this.#keep(url);
  }

  /** Something is known of the engine. In a fleet that scales up and down most of those that have left do not come back. */
  #keep(url: string): void {
    if (this.#present.has(url)) return;
    this.#away.delete(url);
    this.#away.add(url);
    for (const oldest of this.#away) {
      if (this.#away.size <= MAX_AWAY) return;
      this.#away.delete(oldest);
      this.#forget(oldest);
    }
  }

  #forget(url: string): void {
    for (const note of NOTES) this.#state.delete(`${this.#key}|${note}|${url}`);
    for (const each of this.#entries.slice(-1 - MAX_DETAILED)) {
      const record = each.engines.get(url);
      // That no engine could load it decides what others load.
      if (record === undefined || (record.stage === 'error' && !each.hasLoaded)) continue;
      each.engines.delete(url);
      this.#state.delete(`${this.#nameOf(each)}|${url}`);
    }
  }

  /** Where an engine found the weights that it was started with; null: not known. */
  bootPathOf(url: string): string | null {
    return this.#state.get(`${this.#key}|boot|${url}`) ?? null;
  }

  noteBootPath(url: string, path: string): void {
    this.#state.set(`${this.#key}|boot|${url}`, path);
    this.#keep(url);
  }

  /** See `SwapEngine.keptName`. */
  keptNameOf(url: string): string | null {
    return this.#state.get(`${this.#key}|kept|${url}`) ?? null;
  }

  noteKeptName(url: string, name: string | null): void {
    this.#noteName('kept', url, name);
  }

  /** How the engine named its weights when a trainer paused it past `/swap`; '': not at all. null: it is not paused so. */
  heldNameOf(url: string): string | null {
    return this.#state.get(`${this.#key}|held|${url}`) ?? null;
  }

  noteHeldName(url: string, name: string | null): void {
    this.#noteName('held', url, name);
  }

  #noteName(note: 'kept' | 'held', url: string, name: string | null): void {
    const key = `${this.#key}|${note}|${url}`;
    if (name !== null) this.#state.set(key, name);
    else if (this.#state.get(key) !== undefined) this.#state.delete(key);
    this.#keep(url);
  }

  /** The signal that waits; null: none does. */
  get queued(): SwapSignal | null {
    return signal.safeParse(parseJson(this.#state.get(`${this.#key}|queued`) ?? '')).data ?? null;
  }

  saveQueued(waiting: SwapSignal | null): void {
    const name = `${this.#key}|queued`;
    if (waiting !== null) this.#state.set(name, JSON.stringify(waiting));
    else if (this.#state.get(name) !== undefined) this.#state.delete(name);
  }

  /** The snapshot that is being made from a delta, or could not be made; null: there is none. */
  get building(): string | null {
    return this.#state.get(`${this.#key}|building`) ?? null;
  }

  saveBuilding(identity: string | null): void {
    if (identity !== null) this.#state.set(`${this.#key}|building`, identity);
    else if (this.building !== null) this.#state.delete(`${this.#key}|building`);
  }

  latest(count: number): LedgerEntry[] {
    return this.#entries.slice(-count).toReversed();
  }

  add(
    order: Pick<LedgerEntry, 'identity' | 'path' | 'transition' | 'reset' | 'mover' | 'whole'>,
    nowMs: number,
  ): LedgerEntry {
    const seq = ++this.#lastSeq;
    // The reset of a swap that no engine has loaded has not happened.
    const before: NamespaceStep = this.current ?? this.#start;
    const added: LedgerEntry = {
      ...order,
      seq,
      startedAt: nowMs,
      endedAt: null,
      hasLoaded: false,
      isUndone: false,
      // With its number, so that a return to an earlier identity does not find the cache of that time.
      namespace: order.reset === 'none' ? before.namespace : `${order.identity}#${seq}`,
      resetAllSeq: order.reset === 'all' ? seq : before.resetAllSeq,
      engines: new Map(),
      beganMs: performance.now(),
    };
    this.#entries.push(added);
    this.save(added);
    const old = this.#entries.at(-1 - MAX_DETAILED);
    if (old !== undefined) this.#forgetEngines(old);
    if (this.#entries.length > MAX_ENTRIES) this.#state.delete(this.#nameOf(this.#entries.shift()!));
    return added;
  }

  save(changed: LedgerEntry): void {
    if (!this.#entries.includes(changed)) return;
    const { engines: _, beganMs: __, ...kept } = changed;
    this.#state.set(this.#nameOf(changed), JSON.stringify(kept));
  }

  /** How the swap is at one engine. */
  note(changed: LedgerEntry, url: string, record: EngineRecord): void {
    changed.engines.set(url, record);
    if (!this.#entries.includes(changed)) return;
    this.#state.set(`${this.#nameOf(changed)}|${url}`, JSON.stringify(record));
    this.#keep(url);
  }

  /** Forgets the swaps but the one that runs. Their numbers are not used again, and prompt caches keep their namespace. */
  clear(): void {
    const loaded = this.#entries.findLast(({ hasLoaded, endedAt }) => hasLoaded && endedAt !== null);
    const { identity, whole, path, namespace, resetAllSeq } = loaded ?? this.#start;
    const wholePath = whole === undefined ? null : this.pathOf(whole);
    this.#start = { seq: this.#lastSeq, identity, whole, path, wholePath, namespace, resetAllSeq };
    this.#state.set(`${this.#key}|cleared`, JSON.stringify(this.#start));
    // One of an earlier router that was superseded may still have no end.
    const running = this.#entries.filter(({ seq, endedAt }) => endedAt === null && seq > (loaded?.seq ?? 0));
    for (const each of this.#entries) {
      if (running.includes(each)) continue;
      this.#forgetEngines(each);
      this.#state.delete(this.#nameOf(each));
    }
    this.#entries.splice(0, Infinity, ...running);
  }

  #forgetEngines(old: LedgerEntry): void {
    for (const url of old.engines.keys()) this.#state.delete(`${this.#nameOf(old)}|${url}`);
    old.engines.clear();
  }

  #nameOf({ seq }: LedgerEntry): string {
    return `${this.#key}|${seq}`;
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
