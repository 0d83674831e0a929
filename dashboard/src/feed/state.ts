import { batch, signal } from '@preact/signals';
import type { ExchangeRow } from '../../../router/src/observe/exchange-rows.ts';
import type {
  About,
  FeedEvent,
  GroupRow,
  HistoryField,
  Rows,
  SessionRow,
  SwapRow,
  TableName,
  Totals,
  WorkerRow,
} from '../../../router/src/admin/dashboard/protocol.ts';
import { Rates } from './rates.ts';

/** Points of the plots: 15 minutes. */
const POINTS = 900;
/** Points that count as recent. */
const RECENT = 5;
/** Finished exchanges that are kept. */
const EXCHANGES = 2_000;

const keys: { readonly [Table in TableName]: (row: Rows[Table]) => string } = {
  workers: ({ id }) => id,
  sessions: ({ session }) => session,
  swaps: ({ key }) => key,
  groups: ({ id }) => String(id),
};

/** What the router sent. The maps change in place; what shows them calls `follow` to be shown again. */
export class FeedState {
  readonly about = signal<About | null>(null);
  readonly totals = signal<Totals>({ sessions: 0, unlisted_sessions: 0, moves: {}, phases: {}, waits: [], feed: null });
  /** The router's time at the last tick (Unix ms). */
  at = 0;
  readonly workers = new Map<string, WorkerRow>();
  readonly sessions = new Map<string, SessionRow>();
  readonly swaps = new Map<string, SwapRow>();
  /** Groups that wait for a trainer. */
  readonly groups = new Map<string, GroupRow>();
  readonly rates = new Rates();
  /** Newest last. */
  exchanges: ExchangeRow[] = [];
  /** Exchanges that the router left out. */
  dropped = 0;
  readonly #ticks = signal(0);
  #fields: readonly HistoryField[] = [];
  #points: (readonly (number | null)[])[] = [];

  apply(event: FeedEvent): void {
    if ('reset' in event) return this.#reset(event.reset, event.history_fields);
    if ('table' in event) return this.#change(event);
    batch(() => {
      this.at = event.at;
      this.totals.value = event.totals;
      this.#points.push(...event.points);
      if (this.#points.length > POINTS) this.#points = this.#points.slice(-POINTS);
      if (event.exchanges.length > 0) this.exchanges = [...this.exchanges, ...event.exchanges].slice(-EXCHANGES);
      this.dropped += event.dropped;
      this.rates.sample(event.at, this.workers);
      this.#ticks.value++;
    });
  }

  /** Called by a component that is to be shown again with every tick. @returns their number */
  follow(): number {
    return this.#ticks.value;
  }

  /** A column of the history, oldest first. */
  history(field: HistoryField): (number | null)[] {
    const at = this.#fields.indexOf(field);
    return this.#points.map((point) => point[at] ?? null);
  }

  /** The newest value of a field; null before the first. */
  newest(field: HistoryField): number | null {
    return this.#points.at(-1)?.[this.#fields.indexOf(field)] ?? null;
  }

  /** The mean of the last seconds, without those that have no value; null if none has. */
  recent(field: HistoryField): number | null {
    const at = this.#fields.indexOf(field);
    const values = this.#points.slice(-RECENT).flatMap((point) => point[at] ?? []);
    return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length;
  }

  #reset(about: About, fields: readonly HistoryField[]): void {
    this.about.value = about;
    this.#fields = fields;
    this.#points = [];
    this.exchanges = [];
    this.dropped = 0;
    for (const table of [this.workers, this.sessions, this.swaps, this.groups]) table.clear();
    this.rates.clear();
  }

  #change<Table extends TableName>({
    table,
    set,
    gone,
  }: {
    table: Table;
    set: readonly Rows[Table][];
    gone: readonly string[];
  }): void {
    const rows = this[table] as unknown as Map<string, Rows[Table]>;
    for (const row of set) rows.set(keys[table](row), row);
    for (const key of gone) rows.delete(key);
  }
}
