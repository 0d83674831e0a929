import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOfSize } from '../../test/harness/policy.ts';
import { MAX_SESSIONS, SessionPlaces } from './session-places.ts';

function scene(ttlMs = 1_000) {
  const clock = { nowMs: 0 };
  const places = new SessionPlaces(
    () => clock.nowMs,
    () => ttlMs,
  );
  return { clock, places, ...fleetOfSize(2) };
}

test('a session is forgotten when it ends, or when it was idle for its time and nothing of it is in flight', () => {
  const { clock, places, workers } = scene();
  const [a] = workers;
  const x = exchangeOf({ session: 's' });
  assert.equal(places.placed(x, a!), null);
  assert.equal(x.why, 'new');
  clock.nowMs = 5_000;
  places.sweep(clock.nowMs);
  assert.equal(places.size, 1, 'its request is in flight');
  x.outcome = 'complete';
  places.released(x);
  assert.deepEqual([places.get('s')!.turns, places.get('s')!.inFlight], [1, 0]);
  places.sweep((clock.nowMs = 6_500));
  assert.equal(places.size, 0);
  places.placed(exchangeOf({ session: 't' }), a!);
  places.ended('t');
  assert.equal(places.size, 0);
});

test('however many sessions and moves there are, so many are kept', () => {
  const { places, workers } = scene();
  const [a, b] = workers;
  for (let i = 0; i < MAX_SESSIONS + 10; i++) places.placed(exchangeOf({ session: `s${i}` }), a!);
  assert.equal(places.size, MAX_SESSIONS);
  assert.equal(places.get('s0'), undefined);
  for (let i = 0; i < 1_005; i++) {
    const x = exchangeOf({ session: 's500' });
    const to = i % 2 === 0 ? b! : a!;
    const from = places.placed(x, to)!;
    places.moved(x, from, to, { reason: i === 1_004 ? 'retry' : 'unhealthy' });
  }
  const moves = [...places.recentMoves()];
  assert.equal(moves.length, 1_000);
  assert.deepEqual([moves[0]!.reason, moves[1]!.reason, moves[0]!.to], ['retry', 'unhealthy', b!.url]);
  assert.equal(places.get('s500')!.moves, 1_005);
  assert.deepEqual(
    [...places.movesByReason],
    [
      ['unhealthy', 1_004],
      ['retry', 1],
    ],
  );
});
