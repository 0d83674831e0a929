import { deepEqual, equal, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Breakers } from '../../fleet/breakers.ts';
import { Fleet } from '../../fleet/fleet.ts';
import { StallWatch } from '../../fleet/stall-watch.ts';
import { SessionHomes } from '../../choose/session-homes.ts';
import type { ExchangeRow } from '../../observe/exchange-rows.ts';
import { History } from '../../observe/history.ts';
import { Meters } from '../../observe/meters.ts';
import { Feed } from './feed.ts';
import type { FeedEvent, WorkerRow } from './protocol.ts';

interface Scene {
  readonly fleet: Fleet;
  readonly feed: Feed;
  /** Listeners for exchanges. */
  readonly listeners: Set<(row: ExchangeRow) => void>;
  /** Those that the router keeps. */
  readonly ended: ExchangeRow[];
  /** Makes a tick. */
  tick(): Promise<void>;
}

function start(t: TestContext): Scene {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const pool = { maxIdle: 1, idleMs: 1_000, connectTimeoutMs: 1_000 } as never;
  const fleet = new Fleet({ pool, tls: null });
  const meters = new Meters();
  const breakerOptions = {
    isEnabled: false,
    maxEjectedPercent: 50,
    failureThreshold: 1,
    successThreshold: 1,
    openMs: 1,
    windowMs: 1,
  };
  const listeners = new Set<(row: ExchangeRow) => void>();
  const ended: ExchangeRow[] = [];
  const feed = new Feed({
    fleet,
    breakers: new Breakers(
      fleet,
      breakerOptions,
      () => 0,
      () => {},
    ),
    stalls: new StallWatch(fleet, () => {}),
    meters,
    homes: new SessionHomes(
      () => 0,
      () => 1_000,
    ),
    history: new History({ meters, inFlight: () => 0, queued: () => 0, held: () => 0 }),
    swaps: null,
    trainerFeed: null,
    requests: () => [],
    sessionHeaders: () => [],
    healthTimeoutMs: () => 1_000,
    knowsSessions: () => true,
    about: () => ({ version: '1', policies: [], started_at: 0, swaps: false, captures: false }),
    lastExchanges: (count) => ended.slice(-count),
    exchanges(take) {
      listeners.add(take);
      return () => listeners.delete(take);
    },
  });
  return {
    fleet,
    feed,
    listeners,
    ended,
    async tick() {
      await nextTurn();
      t.mock.timers.tick(1_000);
      await nextTurn();
    },
  };
}

type Reader = ReadableStreamDefaultReader<Uint8Array>;

/** Events up to the end of a tick. */
async function readTick(reader: Reader): Promise<FeedEvent[]> {
  const events: FeedEvent[] = [];
  for (;;) {
    const { value } = await reader.read();
    const event = JSON.parse(Buffer.from(value!).toString().slice('data: '.length)) as FeedEvent;
    events.push(event);
    if ('tick' in event) return events;
  }
}

const rowsIn = (events: readonly FeedEvent[]): WorkerRow[] =>
  events.flatMap((event) => ('table' in event && event.table === 'workers' ? event.set : []));

test('a reader that is slow gets what a row is in the end, once', async (t) => {
  const { fleet, feed, tick } = start(t);
  const worker = fleet.add('http://127.0.0.1:1');
  ok(typeof worker !== 'string');
  const reader = feed.read().getReader();
  equal(rowsIn(await readTick(reader)).length, 1);
  const other = feed.read().getReader();
  await readTick(other);
  for (let i = 0; i < 5; i++) {
    fleet.begin(worker);
    await tick();
    await readTick(other);
  }
  const events = await readTick(reader);
  deepEqual(
    rowsIn(events).map(({ in_flight }) => in_flight),
    [5],
  );
  await Promise.all([reader.cancel(), other.cancel()]);
});

test('a reader that is slow with the rows gets each exchange once', async (t) => {
  const { fleet, feed, listeners, tick } = start(t);
  for (let i = 0; i < 500; i++) fleet.add(`http://127.0.0.1:${1_000 + i}`);
  const reader = feed.read().getReader();
  const other = feed.read().getReader();
  await readTick(other);
  const passTick = async (): Promise<void> => {
    await tick();
    await readTick(other);
  };
  let id = 0;
  const end = (): void => {
    const row = { id: String(id++) } as ExchangeRow;
    for (const take of listeners) take(row);
  };
  await readTick(reader);
  for (const worker of fleet.workers) fleet.begin(worker);
  end();
  await passTick();
  // It has the first rows of this tick when the next tick passes.
  await reader.read();
  end();
  await passTick();
  const sent = [await readTick(reader)];
  end();
  await passTick();
  sent.push(await readTick(reader));
  const last = sent.map((events) => events.at(-1)!).filter((event) => 'tick' in event);
  deepEqual(
    last.flatMap(({ exchanges }) => exchanges.map((each) => each.id)),
    ['0', '1', '2'],
  );
  deepEqual(
    last.map(({ dropped }) => dropped),
    [0, 0],
  );
  await Promise.all([reader.cancel(), other.cancel()]);
});

test('exchanges beyond those of a second are counted', async (t) => {
  const { feed, listeners, tick } = start(t);
  const reader = feed.read().getReader();
  await readTick(reader);
  for (let i = 0; i < 230; i++) for (const take of listeners) take({ id: String(i) } as ExchangeRow);
  await tick();
  const last = (await readTick(reader)).at(-1)!;
  ok('tick' in last);
  deepEqual([last.exchanges.length, last.dropped], [200, 30]);
  await reader.cancel();
});

test('a new reader gets the exchanges that ended before it came, and each one once', async (t) => {
  const { feed, listeners, ended, tick } = start(t);
  const end = (id: string): void => {
    const row = { id } as ExchangeRow;
    ended.push(row);
    for (const take of listeners) take(row);
  };
  end('before');
  const idsOf = async (reader: ReturnType<typeof readerOf>): Promise<string[]> => {
    const last = (await readTick(reader)).at(-1)!;
    ok('tick' in last);
    return last.exchanges.map(({ id }) => id);
  };
  const readerOf = () => feed.read().getReader();
  const one = readerOf();
  deepEqual(await idsOf(one), ['before']);
  end('between');
  const two = readerOf();
  deepEqual(await idsOf(two), ['before']);
  await tick();
  deepEqual([await idsOf(one), await idsOf(two)], [['between'], ['between']]);
  await Promise.all([one.cancel(), two.cancel()]);
});

test('after the last reader nothing is made any more', async (t) => {
  const { feed, listeners, tick } = start(t);
  equal(listeners.size, 0);
  const [one, two] = [feed.read().getReader(), feed.read().getReader()];
  await Promise.all([readTick(one), readTick(two)]);
  equal(listeners.size, 1);
  await one.cancel();
  equal(listeners.size, 1);
  // A reader that waits for the next tick leaves with it.
  const waiting = two.read();
  const left = two.cancel();
  await tick();
  await Promise.all([waiting, left]);
  equal(listeners.size, 0);
});
