import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { Refused } from '../../plugin.ts';
import { SessionStarts, Staleness, type StalenessParts } from './staleness.ts';

const LEDGER = ['base', 'v1', 'v2', 'v3', 'v4'];
const [a, b] = ['a', 'b'].map((name) => ({ url: name, engineUrl: name })) as unknown as [Worker, Worker];

function scene(options: Partial<StalenessParts['options']> = {}) {
  const held = new Map<Worker, string | null>([
    [a, 'v1'],
    [b, 'v1'],
  ]);
  const targets = new Map<Worker, string>();
  let changed: (worker: Worker) => void = () => {};
  const snapshots: StalenessParts['snapshots'] = {
    of: (worker) => held.get(worker)!,
    targetsOf: (worker) => [targets.get(worker) ?? []].flat(),
    onChange: (listener) => (changed = listener),
    positionOf: (_, identity) => (LEDGER.includes(identity) ? LEDGER.indexOf(identity) : null),
    snapshotsBetween: (_, from, to) =>
      LEDGER.includes(from) ? Math.max(0, LEDGER.indexOf(to) - LEDGER.indexOf(from)) : 0,
  };
  const staleness = new Staleness({
    snapshots,
    options: {
      maxSnapshots: undefined,
      abortsStale: false,
      sessionHeaders: ['x-session-id'],
      sessionTtlSecs: 1,
      ...options,
    },
    nowMs: () => 0,
  });
  const { plugin } = staleness;
  /** A request with these fields. */
  const exchange = (fields: Record<string, string> = {}, more: object = {}): { x: Exchange; ends: string[] } => {
    const ends: string[] = [];
    const x = {
      tenant: '',
      session: '',
      isLastTurn: false,
      outcome: null,
      ...more,
      head: { get: (name: string) => fields[name] },
      ended(_: unknown, { error }: { error: { code: string } }) {
        ends.push(error.code);
        plugin.finished!(x as unknown as Exchange);
      },
    };
    return { x: x as unknown as Exchange, ends };
  };
  return {
    staleness,
    exchange,
    targets,
    swap(worker: Worker, snapshot: string | null) {
      held.set(worker, snapshot);
      changed(worker);
    },
    choose: (x: Exchange): string[] => plugin.choose!(x, [a, b]).map(({ url }) => url),
    send: (x: Exchange, worker: Worker): unknown => plugin.requestBody!(x, Buffer.alloc(0), worker),
    finish: (x: Exchange): void => plugin.finished!(x),
  };
}

const code = (run: () => unknown): string => {
  try {
    run();
    return '';
  } catch (error) {
    assert.ok(error instanceof Refused, String(error));
    return `${error.refusal.status} ${error.refusal.code}`;
  }
};

const MIN = 'x-turnout-min-snapshot';
const TOO_OLD = '409 snapshot_too_old';
const TOO_STALE = '409 session_too_stale';

test('a request goes to workers that have its snapshot or a later one', () => {
  const { exchange, choose, swap } = scene();
  const at = (least: string): string => {
    try {
      return choose(exchange({ [MIN]: least }).x).join();
    } catch (error) {
      return (error as Refused).refusal.code;
    }
  };
  swap(b, 'v2');
  assert.equal(at('base'), 'a,b');
  assert.equal(at('v1'), 'a,b');
  assert.equal(at('v2'), 'b');
  assert.equal(at('v3'), 'snapshot_too_old');
  assert.equal(at('unheard'), 'snapshot_too_old');
  for (const wrong of ['..', 'a/b', '']) assert.equal(at(wrong), 'bad_request', wrong);
  assert.equal(choose(exchange().x).join(), 'a,b');
  // What the ledger does not have equals itself.
  swap(a, 'unheard');
  assert.equal(at('unheard'), 'a');
  swap(a, null);
  assert.equal(at('base'), 'b');
});

test('it waits for a swap that runs; what the worker has then decides', () => {
  const { exchange, choose, send, swap, targets } = scene();
  const { x } = exchange({ [MIN]: 'v2' });
  assert.equal(
    code(() => choose(x)),
    TOO_OLD,
  );
  targets.set(a, 'v3');
  assert.deepEqual(choose(x), ['a']);
  assert.equal(
    code(() => send(x, a)),
    TOO_OLD,
    'the swap has failed',
  );
  swap(a, 'v3');
  assert.equal(
    code(() => send(x, a)),
    '',
  );
});

test('a session that lags behind by more than the limit gets no further turn', () => {
  const { exchange, send, swap } = scene({ maxSnapshots: 1 });
  const turn = (session: string): string => code(() => send(exchange({ 'x-session-id': session }).x, a));
  assert.equal(turn('s'), '');
  swap(a, 'v2');
  assert.equal(turn('s'), '');
  swap(a, 'v3');
  assert.equal(turn('s'), TOO_STALE);
  assert.equal(turn('new'), '');
  assert.equal(
    code(() => send(exchange().x, a)),
    '',
    'without a session each request is new',
  );
  swap(a, 'v1');
  assert.equal(turn('s'), '', 'back at its own snapshot');
});

test('a session of one tenant neither delays nor ends that of another one with its name', () => {
  const { exchange, send, finish, swap } = scene({ maxSnapshots: 1 });
  const turn = (tenant: string): string => code(() => send(exchange({ 'x-session-id': 's' }, { tenant }).x, a));
  assert.equal(turn('one'), '');
  swap(a, 'v3');
  assert.equal(turn('two'), '', 'it begins now');
  assert.equal(turn('one'), TOO_STALE);
  const { x: last } = exchange({ 'x-session-id': 's' }, { tenant: 'two', isLastTurn: true, outcome: 'complete' });
  send(last, a);
  finish(last);
  assert.equal(turn('one'), TOO_STALE, 'it has not ended');
});

test('with abort-stale running requests end at the swap that makes them too old, others go on', () => {
  const { exchange, send, swap } = scene({ maxSnapshots: 1, abortsStale: true });
  const [first, second, other] = [exchange({ 'x-session-id': 's' }), exchange(), exchange()];
  send(first.x, a);
  swap(a, 'v2');
  send(second.x, a);
  send(other.x, b);
  swap(a, 'v3');
  assert.deepEqual([first.ends, second.ends, other.ends], [['session_too_stale'], [], []]);
  swap(a, 'v4');
  assert.deepEqual([second.ends, other.ends], [['session_too_stale'], []]);
});

test('without abort-stale, or without a limit, nothing is ended', () => {
  for (const options of [{ maxSnapshots: 0 }, { abortsStale: true }]) {
    const { exchange, send, swap } = scene(options);
    const { x, ends } = exchange();
    send(x, a);
    swap(a, 'v4');
    assert.deepEqual(ends, []);
  }
});

test('the lag is counted when a request ends', () => {
  const { staleness, exchange, send, swap, finish } = scene();
  const { x } = exchange({ 'x-session-id': 's' });
  send(x, a);
  finish(x);
  const later = exchange({ 'x-session-id': 's' }).x;
  swap(a, 'v2');
  send(later, a);
  swap(a, 'v3');
  finish(later);
  finish(exchange().x);
  assert.deepEqual(Array.from(staleness.lags.slice(0, 4)), [1, 0, 1, 0]);
});

test('a session keeps the snapshot of its first request until it ends', () => {
  const starts = new SessionStarts(
    () => 0,
    () => 1_000,
  );
  assert.equal(starts.sent('a', '', 'v1'), 'v1');
  assert.equal(starts.sent('a', '', 'v2'), 'v1');
  assert.equal(starts.sent('b', '', 'v2'), 'v2');
  starts.ended('a', '');
  assert.equal(starts.sent('a', '', 'v3'), 'v3');
  for (const tenant of ['one', 'two']) starts.sent('c', tenant, 'v1');
  starts.ended('c', 'one');
  assert.deepEqual([starts.sent('c', 'one', 'v2'), starts.sent('c', 'two', 'v2')], ['v2', 'v1']);
  starts.ended('c', undefined);
  assert.deepEqual([starts.sent('c', 'one', 'v3'), starts.sent('c', 'two', 'v3')], ['v3', 'v3']);
});

test('sessions that are idle for longer than the time to live are forgotten; a request keeps its session', () => {
  let nowMs = 0;
  const starts = new SessionStarts(
    () => nowMs,
    () => 1_000,
  );
  starts.sent('idle', '', 'v1');
  starts.sent('used', '', 'v1');
  nowMs = 900;
  starts.sent('used', '', 'v2');
  nowMs = 1_100;
  starts.sent('other', '', 'v3');
  assert.equal(starts.size, 2);
  assert.equal(starts.sent('used', '', 'v3'), 'v1');
  assert.equal(starts.sent('idle', '', 'v3'), 'v3');
});

test('the number of sessions has a bound', () => {
  const starts = new SessionStarts(
    () => 0,
    () => 1_000,
  );
  for (let i = 0; i < 100_010; i++) starts.sent(String(i), '', 'v1');
  assert.equal(starts.size, 100_000);
  assert.equal(starts.sent('100009', '', 'v2'), 'v1');
  assert.equal(starts.sent('0', '', 'v2'), 'v2');
});
