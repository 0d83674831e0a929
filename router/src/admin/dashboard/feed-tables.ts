import type { TrainerFeed } from '../../observe/trainer-feed.ts';
import type { ExchangeRow } from '../../observe/exchange-rows.ts';
import type { History } from '../../observe/history.ts';
import { waitsOf } from '../../observe/waits.ts';
import { EngineLoads } from './engine-loads.ts';
import type { About, TableName, Totals } from './protocol.ts';
import { RowTable } from './row-table.ts';
import { SessionRows, type SessionSources } from './session-rows.ts';
import { type WorkerSources, putSwaps, putWorkers } from './fleet-rows.ts';

/** What the feed is made from. */
export interface FeedSources extends WorkerSources, SessionSources {
  /** The groups that wait for a trainer; null: the plugin `feed` is not loaded. */
  readonly trainerFeed: TrainerFeed | null;
  readonly about: () => About;
  readonly history: History;
  readonly healthTimeoutMs: () => number;
  /** Passes the row of each exchange that ends. @returns stops it */
  readonly exchanges: (take: (row: ExchangeRow) => void) => () => void;
  /** The rows of the last exchanges that have ended, at most so many; oldest first. */
  readonly lastExchanges: (count: number) => readonly ExchangeRow[];
}

const EVERY_MS = 1_000;
/** Exchanges that are sent per second; further ones are counted. */
const EXCHANGES_PER_TICK = 200;
/** Exchanges that a new reader gets. */
const PAST_EXCHANGES = 500;
/** Ticks for which exchanges are kept for a reader that is behind. */
const KEPT_TICKS = 5;

/** Exchanges that ended in one tick. */
interface Ended {
  readonly tick: number;
  readonly json: string[];
  count: number;
}

/** The page asks for the candidates of those that it shows. */
const jsonOf = (row: ExchangeRow): string => JSON.stringify({ ...row, candidates: null });

/** The rows of the feed, made anew every second while there is a reader. */
export class FeedTables {
  tick = 0;
  totals!: Totals;
  endedCount = 0;
  readonly tables: Readonly<Record<TableName, RowTable>> = {
    workers: new RowTable(),
    sessions: new RowTable(),
    swaps: new RowTable(),
    groups: new RowTable(),
  };
  readonly #sources: FeedSources;
  readonly #loads: EngineLoads;
  readonly #sessions: SessionRows;
  readonly #stopRows: () => void;
  readonly #timer: NodeJS.Timeout;
  #ended: Ended[] = [{ tick: 1, json: [], count: 0 }];
  #next = Promise.withResolvers<void>();
  #isLooking = false;

  constructor(sources: FeedSources) {
    this.#sources = sources;
    this.#loads = new EngineLoads(sources.fleet, sources.healthTimeoutMs);
    this.#sessions = new SessionRows(sources);
    this.#stopRows = sources.exchanges((row) => this.#take(row));
    this.#timer = setInterval(() => void this.#look(), EVERY_MS);
    this.#timer.unref();
    void this.#look();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#stopRows();
  }

  /** Resolves when there is a tick after this one. */
  async after(tick: number): Promise<void> {
    while (this.tick <= Math.max(0, tick)) await this.#next.promise;
  }

  /** Whether what changed after this tick can be told. */
  knows(tick: number): boolean {
    return Object.values(this.tables).every((table) => table.knows(tick));
  }

  /** Rows of the exchanges that had ended at the last tick, as far as the router keeps them. */
  past(): string[] {
    const since = this.#ended.at(-1)!.count;
    const rows = this.#sources.lastExchanges(PAST_EXCHANGES + since);
    return rows.slice(0, rows.length - since).map(jsonOf);
  }

  /** Rows of the exchanges that ended after this tick, as far as they are kept. */
  endedAfter(tick: number): string[] {
    return this.#ended.filter((each) => each.tick > tick && each.tick <= this.tick).flatMap(({ json }) => json);
  }

  async #look(): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    const { swaps, homes, requests, sessionHeaders, knowsSessions } = this.#sources;
    const tick = this.tick + 1;
    this.#loads.ask();
    putWorkers(this.#sources, this.#loads, this.tables.workers, tick);
    if (swaps !== null) putSwaps(swaps, this.tables.swaps, tick);
    await this.#sessions.put(this.tables.sessions, tick);
    await this.#putGroups(tick);
    this.totals = {
      sessions: knowsSessions() ? homes.size : null,
      unlisted_sessions: this.#sessions.unlisted,
      moves: Object.fromEntries(homes.movesByReason),
      phases: this.#sessions.phases,
      waits: waitsOf(requests(), homes, sessionHeaders(), performance.now()),
      feed: this.#sources.trainerFeed?.stats() ?? null,
    };
    this.endedCount += this.#ended.at(-1)!.count;
    this.tick = tick;
    this.#ended = [...this.#ended.slice(-KEPT_TICKS), { tick: tick + 1, json: [], count: 0 }];
    this.#isLooking = false;
    this.#next.resolve();
    this.#next = Promise.withResolvers();
  }

  async #putGroups(tick: number): Promise<void> {
    // While the recorder thread is started again, the rows stay as they are.
    const rows = await this.#sources.trainerFeed?.rows().catch(() => null);
    if (rows == null) return;
    const table = this.tables.groups;
    const shown = new Set(rows.map(([key]) => key));
    for (const [key, json] of rows) table.put(key, json, tick);
    for (const key of table.keys()) if (!shown.has(key)) table.drop(key, tick);
  }

  #take(row: ExchangeRow): void {
    const ended = this.#ended.at(-1)!;
    ended.count++;
    if (ended.json.length < EXCHANGES_PER_TICK) ended.json.push(jsonOf(row));
  }
}
