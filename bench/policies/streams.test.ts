import assert from 'node:assert/strict';
import { test } from 'node:test';
import { defaultEngine } from './engine-options.ts';
import { streams } from './streams.ts';
import type { Clients, Session, Trace } from './workload.ts';

/** The first `count` sessions that begin after those at the start, when sessions end in the order in which they began. */
function later({ sessions, stream }: Trace, count: number): Session[] {
  const clients = stream!.clients();
  const open = [...sessions];
  const begun: Session[] = [];
  while (begun.length < count) {
    const next = clients.ended(open.shift()!);
    open.push(...next);
    begun.push(...next);
  }
  return begun.slice(0, count);
}

const ids = (sessions: readonly Session[]): string[] => sessions.map(({ id }) => id);

/** The sessions of which `isLong` end last. */
function endAll(clients: Clients, sessions: readonly Session[], isLong: (session: Session) => boolean): Session[] {
  return sessions.filter((session) => !isLong(session)).flatMap((session) => clients.ended(session));
}

test('a seed gives one stream, whatever ends first', () => {
  const make = streams['stream-2x']!;
  assert.deepEqual(later(make(3), 40), later(make(3), 40));
  assert.notDeepEqual(later(make(3), 40), later(make(4), 40));
  const stream = make(3);
  const clients = stream.stream!.clients();
  const backwards = stream.sessions.toReversed().slice(0, 40);
  assert.deepEqual(
    backwards.flatMap((session) => clients.ended(session)),
    later(stream, 40),
  );
});

for (const [name, times] of [
  ['stream-1.5x', 1.5],
  ['stream-2x', 2],
  ['stream-4x', 4],
] as const) {
  test(`${name}: the open sessions need ${times} times the KV memory of 8 engines`, () => {
    const stream = streams[name]!(1);
    const turns = later(stream, 2000).flatMap((session) => session.turns);
    const tokens = turns.reduce((sum, turn) => sum + turn.promptTokens + turn.outputTokens / 2, 0) / turns.length;
    const share = (stream.sessions.length * tokens) / (8 * defaultEngine.kvTokens);
    assert.ok(Math.abs(share / times - 1) < 0.06, `${share}`);
  });
}

test('when a session ends the next of its group begins at once; groups of 8 in order', () => {
  const stream = streams['stream-2x']!(1);
  const clients = stream.stream!.clients();
  assert.equal(stream.sessions.length, 656);
  assert.deepEqual(ids(clients.ended(stream.sessions[7]!)), ['s82.0']);
  assert.deepEqual(ids(clients.ended(stream.sessions[3]!)), ['s82.1']);
  assert.deepEqual([...Map.groupBy(later(stream, 16), ({ group }) => group).values()].map(ids), [
    Array.from({ length: 8 }, (_, i) => `s82.${i}`),
    Array.from({ length: 8 }, (_, i) => `s83.${i}`),
  ]);
});

test('stream-straggler: a group begins when another has ended, and its last session has three times the turns', () => {
  const stream = streams['stream-straggler']!(1);
  const clients = stream.stream!.clients();
  const [group] = Map.groupBy(stream.sessions, (session) => session.group).values();
  assert.deepEqual(
    group!.slice(1).flatMap((session) => clients.ended(session)),
    [],
  );
  assert.equal(clients.ended(group![0]!).length, 8);
  const begun = later(stream, 800);
  const mean = (of: readonly Session[]): number => of.reduce((sum, { turns }) => sum + turns.length, 0) / of.length;
  const times = mean(begun.filter(({ id }) => id.endsWith('.7'))) / mean(begun.filter(({ id }) => !id.endsWith('.7')));
  assert.ok(times > 2.2 && times < 3.2, `${times}`);
});

test('stream-waves: 800 sessions begin when all but 160 have ended', () => {
  const stream = streams['stream-waves']!(1);
  const clients = stream.stream!.clients();
  const isLong = ({ id }: Session): boolean => Number(id.slice(1).split('.')[0]) < 20;
  const next = endAll(clients, stream.sessions, isLong);
  assert.equal(next.length, 800);
  assert.equal(next[0]!.id, 's100.0');
});

test('stream-swap: engines stop every 120 s; stream-tools: few tool calls take minutes', () => {
  const pauses = streams['stream-swap']!(1).events.filter(({ kind }) => kind === 'pause');
  assert.deepEqual(
    pauses.slice(0, 3).map(({ atSeconds }) => atSeconds),
    [120, 240, 360],
  );
  const delays = later(streams['stream-tools']!(1), 1000).flatMap(({ turns }) =>
    turns.map((turn) => turn.delaySeconds),
  );
  const share = delays.filter((delay) => delay > 60).length / delays.length;
  assert.ok(share > 0.02 && share < 0.04, `${share}`);
});
