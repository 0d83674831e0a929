import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import type { SessionRow } from '../../../router/src/admin/dashboard/protocol.ts';
import { groupsOf, lanesOf } from './lanes.ts';

const NOW = 100_000;

const turn = (session: string, at: number, ms: number, more: object = {}) => ({
  id: `${session}@${at}`,
  at,
  ms,
  session,
  group: 'g',
  worker: 'http://a',
  reason: 'home',
  from: null,
  outcome: 'complete',
  status: 200,
  queued_ms: 0,
  held_ms: 0,
  ...more,
});
const row = (session: string, more: Partial<SessionRow> = {}): [string, SessionRow] => [
  session,
  {
    session,
    group: 'g',
    worker: 'http://a',
    since: 0,
    last: 90_000,
    turns: 1,
    in_flight: 0,
    why: 'home',
    moves: 0,
    move: null,
    phase: null,
    waits_for: null,
    waits_text: null,
    waits_since: null,
    ...more,
  },
];

test('a turn is a bar from its worker on, after the time that it waited; a move is marked', () => {
  const turns = [
    turn('s', 80_000, 5_000),
    turn('s', 90_000, 4_000, { held_ms: 1_000, worker: 'http://b', from: 'http://a', reason: 'moved: worker full' }),
  ];
  const [lane] = lanesOf(turns, new Map([row('s')]), 70_000, NOW, true);
  deepEqual(
    lane!.bars.map(({ from, to, worker, isWait, left }) => ({ from, to, worker, isWait, left })),
    [
      { from: 80_000, to: 85_000, worker: 'http://a', isWait: false, left: null },
      { from: 90_000, to: 91_000, worker: 'http://b', isWait: true, left: null },
      { from: 91_000, to: 94_000, worker: 'http://b', isWait: false, left: 'http://a' },
    ],
  );
  equal(lane!.hasMoved, true);
  equal(lane!.isWaiting, false);
});

test('a request in flight reaches until now', () => {
  const [lane] = lanesOf(
    [],
    new Map([row('s', { in_flight: 1, phase: 'streaming', last: 95_000 })]),
    70_000,
    NOW,
    true,
  );
  const [bar] = lane!.bars;
  deepEqual([bar!.from, bar!.to, bar!.isWait, bar!.isRunning], [95_000, NOW, false, true]);
  equal(lane!.isWaiting, false);
});

test('a wait that lasts reaches from its begin until now, and says for what', () => {
  const waits = { in_flight: 0, phase: 'held', waits_text: 'KV cache space', waits_since: 95_000 } as const;
  const of = (more: Partial<SessionRow>) => {
    const [lane] = lanesOf([turn('s', 90_000, 4_000)], new Map([row('s', { ...waits, ...more })]), 70_000, NOW, true);
    equal(lane!.isWaiting, true);
    const last = lane!.bars.at(-1)!;
    return [last.from, last.to, last.isWait, last.isRunning, last.text];
  };
  const drawn = [95_000, NOW, true, true, 'waits for KV cache space'];
  deepEqual(of({}), drawn, 'between two turns');
  deepEqual(of({ last: 10_000 }), drawn, 'after a pause of its client');
  deepEqual(of({ worker: null, since: null, last: null, turns: 0 }), drawn, 'its first turn');
});

test('turns before the time that is shown, and sessions without a turn in it, have no lane', () => {
  const old = row('old', { last: 10_000 });
  deepEqual(lanesOf([turn('gone', 10_000, 5_000)], new Map([old]), 70_000, NOW, true), []);
});

test('a group: ended and open sessions, and since when the tail lasts', () => {
  const turns = [turn('ended', 70_000, 5_000), turn('ended', 76_000, 4_000), turn('open', 71_000, 20_000)];
  const [group, ...others] = groupsOf(lanesOf(turns, new Map([row('open')]), 0, NOW, true), NOW);
  deepEqual(others, []);
  const { lanes, ended, began, firstEnd, last } = group!;
  deepEqual(
    [lanes.map(({ session }) => session), ended, began, firstEnd, last],
    [['ended', 'open'], 1, 70_000, 80_000, NOW],
  );
});

test('if the router knows no sessions, no session counts as ended', () => {
  const turns = [turn('one', 70_000, 5_000), turn('two', 71_000, 20_000)];
  const lanes = lanesOf(turns, new Map(), 0, NOW, false);
  deepEqual(
    lanes.map(({ hasEnded }) => hasEnded),
    [null, null],
  );
  const [group] = groupsOf(lanes, NOW);
  deepEqual([group!.ended, group!.firstEnd, group!.last], [null, null, 91_000]);
});
