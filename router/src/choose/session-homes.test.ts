import assert from 'node:assert/strict';
import { test } from 'node:test';
import { memoryUsed } from '../../test/harness/memory-used.ts';
import { exchangeOf, fleetOfSize } from '../../test/harness/policy.ts';
import { BodyReader } from '../classify/body-reader.ts';
import { keyOrders } from '../classify/routing-keys.ts';
import { SessionHomes } from './session-homes.ts';

function scene(ttlMs = 1_000, maxSessions?: number) {
  const clock = { nowMs: 0 };
  const homes = new SessionHomes(
    () => clock.nowMs,
    () => ttlMs,
    maxSessions,
  );
  return { clock, homes, ...fleetOfSize(2) };
}

test('a session is forgotten when it ends, or when it was idle for its time and nothing of it is in flight', () => {
  const { clock, homes, workers } = scene();
  const [a] = workers;
  const x = exchangeOf({ session: 's' });
  assert.equal(homes.placed(x, a!), null);
  assert.equal(x.why, 'new');
  clock.nowMs = 5_000;
  homes.sweep(clock.nowMs);
  assert.equal(homes.size, 1, 'its request is in flight');
  x.outcome = 'complete';
  homes.released(x);
  assert.deepEqual([homes.get('s')!.turns, homes.get('s')!.inFlight], [1, 0]);
  homes.sweep((clock.nowMs = 6_500));
  assert.equal(homes.size, 0);
  homes.placed(exchangeOf({ session: 't' }), a!);
  homes.ended('t');
  assert.equal(homes.size, 0);
});

test('the sessions at each worker are counted', () => {
  const { homes, workers } = scene(1_000, 3);
  const [a, b] = workers;
  for (const session of ['s1', 's2', 's3']) homes.placed(exchangeOf({ session }), a!);
  const x = exchangeOf({ session: 's1' });
  homes.moved(x, homes.placed(x, b!)!, b!, { reason: 'unhealthy' });
  assert.deepEqual(Object.fromEntries(homes.byWorker), { [a!.url]: 2, [b!.url]: 1 });
  homes.placed(exchangeOf({ session: 's4' }), b!);
  assert.deepEqual(Object.fromEntries(homes.byWorker), { [a!.url]: 2, [b!.url]: 1 }, 'the oldest is forgotten');
  homes.ended('s4');
  homes.ended('s4');
  assert.deepEqual(Object.fromEntries(homes.byWorker), { [a!.url]: 2 });
});

test('very many sessions are looked at in several calls', () => {
  const { clock, homes, workers } = scene();
  for (let i = 0; i < 25_000; i++) {
    const x = exchangeOf({ session: `s${i}` });
    homes.placed(x, workers[0]!);
    homes.released(x);
  }
  clock.nowMs = 5_000;
  const sizes = [1, 2, 3, 4].map(() => (homes.sweep(clock.nowMs), homes.size));
  assert.deepEqual(sizes, [15_000, 5_000, 0, 0]);
});

test('however many sessions and moves there are, so many are kept', () => {
  const { homes, workers } = scene(1_000, 1_000);
  const [a, b] = workers;
  for (let i = 0; i < 1_010; i++) homes.placed(exchangeOf({ session: `s${i}` }), a!);
  assert.equal(homes.size, 1_000);
  assert.deepEqual([homes.get('s9'), homes.get('s10')?.inFlight], [undefined, 1]);
  for (let i = 100; i < 600; i++) if (i !== 500) homes.ended(`s${i}`);
  for (let i = 0; i < 1_000; i++) homes.placed(exchangeOf({ session: `later ${i}` }), a!);
  assert.equal(homes.size, 1_000);
  assert.deepEqual([homes.get('s1009'), homes.get('later 0')?.inFlight], [undefined, 1]);
  homes.placed(exchangeOf({ session: 's500' }), a!);
  for (let i = 0; i < 1_005; i++) {
    const x = exchangeOf({ session: 's500' });
    const to = i % 2 === 0 ? b! : a!;
    const from = homes.placed(x, to)!;
    homes.moved(x, from, to, { reason: i === 1_004 ? 'retry' : 'unhealthy' });
  }
  const moves = [...homes.recentMoves()];
  assert.equal(moves.length, 1_000);
  assert.deepEqual([moves[0]!.reason, moves[1]!.reason, moves[0]!.to], ['retry', 'unhealthy', b!.url]);
  assert.equal(homes.get('s500')!.moves, 1_005);
  assert.deepEqual(
    [...homes.movesByReason],
    [
      ['unhealthy', 1_004],
      ['retry', 1],
    ],
  );
});

test('a session does not keep the head of its first request in memory', () => {
  const { homes, workers } = scene();
  const reader = new BodyReader(keyOrders.turnout(['x-session-id']));
  const place = (i: number): void => {
    const name = `x-session-id: a-session-with-a-long-name-${i}`;
    const x = exchangeOf({
      headers: [name, `x-turnout-group: group-of-session-${i}`, `x-more: ${'m'.repeat(16_000)}`],
    });
    reader.readHead(x);
    homes.placed(x, workers[0]!);
  };
  place(0);
  const before = memoryUsed();
  for (let i = 1; i <= 500; i++) place(i);
  const bytes = (memoryUsed() - before) / 500;
  assert.ok(homes.size === 501 && bytes < 2_000, `${bytes} bytes per session`);
});

test('sessions that have ended, or were forgotten, leave nothing in memory', () => {
  const { clock, homes, workers } = scene(1_000, 1_000);
  const pass = (count: number, what: string): void => {
    for (let i = 0; i < count; i++) {
      const x = exchangeOf({ session: `${what}-${i}` });
      homes.placed(x, workers[0]!);
      x.outcome = 'complete';
      homes.released(x);
      if (i % 2 === 0) homes.ended(x.session);
      else if (i % 512 === 1) homes.sweep((clock.nowMs += 2_000));
    }
  };
  pass(2_000, 'before');
  const before = memoryUsed();
  pass(20_000, 'a-session-with-a-long-name');
  const bytes = (memoryUsed() - before) / 20_000;
  assert.ok(homes.size < 1_000 && bytes < 50, `${bytes} bytes per session`);
});
