import { historyFields } from '../../observe/history.ts';
import { type FeedSources, FeedTables } from './feed-tables.ts';
import type { FeedEvent } from './protocol.ts';
import type { RowTable } from './row-table.ts';

/** Rows in one event: what is written at once for a client that does not read. */
const ROWS_PER_EVENT = 200;

/**
 * What the router does, as server-sent events for any number of readers: first everything, then once a second what changed. A reader that
 * reads slowly gets what changed since its own last event, so nothing is kept for it. Without readers there is no timer and no row.
 */
export class Feed {
  readonly #sources: FeedSources;
  readonly #encoder = new TextEncoder();
  #running: FeedTables | null = null;
  #readers = 0;

  constructor(sources: FeedSources) {
    this.#sources = sources;
  }

  /** The body of a response; to cancel it is to leave. */
  read(): ReadableStream<Uint8Array> {
    return ReadableStream.from(this.#encoded());
  }

  async *#encoded(): AsyncGenerator<Uint8Array> {
    this.#readers++;
    const running = (this.#running ??= new FeedTables(this.#sources));
    try {
      for await (const json of this.#events(running)) yield this.#encoder.encode(`data: ${json}\n\n`);
    } finally {
      if (--this.#readers === 0) {
        running.close();
        this.#running = null;
      }
    }
  }

  async *#events(running: FeedTables): AsyncGenerator<string> {
    const { about, history } = this.#sources;
    let tick = -1;
    let points = 0;
    /** Exchanges are sent up to this tick, and so many had ended by then. */
    let sentTick = -1;
    let ended = 0;
    for (;;) {
      await running.after(tick);
      if (!running.knows(tick)) tick = -1;
      if (tick < 0) {
        points = 0;
        yield JSON.stringify({ reset: about(), history_fields: historyFields } satisfies FeedEvent);
      }
      const now = running.tick;
      for (const [name, table] of Object.entries(running.tables)) yield* rowEvents(name, table, tick);
      // While a slow reader took the rows there may have been further ticks.
      const exchanges = tick < 0 ? running.past() : running.endedAfter(sentTick);
      const dropped = tick < 0 ? 0 : running.endedCount - ended - exchanges.length;
      sentTick = running.tick;
      ended = running.endedCount;
      const head = JSON.stringify({
        tick: now,
        at: Date.now(),
        totals: running.totals,
        points: history.since(points),
        dropped,
        exchanges: [],
      } satisfies FeedEvent);
      points = history.count;
      tick = now;
      // The rows are JSON already.
      yield `${head.slice(0, -']}'.length)}${exchanges.join(',')}]}`;
    }
  }
}

function* rowEvents(name: string, table: RowTable, tick: number): Generator<string> {
  const { set, gone } = table.since(tick);
  for (let at = 0; at < set.length; at += ROWS_PER_EVENT)
    yield `{"table":"${name}","set":[${set.slice(at, at + ROWS_PER_EVENT).join(',')}],"gone":[]}`;
  if (gone.length > 0) yield `{"table":"${name}","set":[],"gone":${JSON.stringify(gone)}}`;
}
