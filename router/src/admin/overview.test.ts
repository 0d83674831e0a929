import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOfSize } from '../../test/harness/policy.ts';
import { SessionHomes } from '../choose/session-homes.ts';
import { listSessions } from './overview.ts';

test('of more sessions than are listed all are counted, and those that moved or had a request last come first', () => {
  let nowMs = 0;
  const homes = new SessionHomes(
    () => nowMs,
    () => 60_000,
  );
  const { workers } = fleetOfSize(2);
  const [a, b] = workers;
  for (let i = 0; i < 25_000; i++) homes.placed(exchangeOf({ session: `s${i}` }), i < 20_000 ? a! : b!);
  nowMs = 1_000;
  homes.placed(exchangeOf({ session: 's7' }), a!);
  const moved = exchangeOf({ session: 's3' });
  homes.moved(moved, homes.placed(moved, b!)!, b!, { reason: 'unhealthy' });
  nowMs = 2_000;
  homes.placed(exchangeOf({ session: 's9' }), a!);
  const context = { homes, requests: () => [], sessionHeaders: () => [], feedStats: () => null };
  const { total, matching, by_worker, sessions } = listSessions(context, { limit: 10_000 });
  deepEqual([total, matching, sessions.length], [25_000, 25_000, 10_000]);
  deepEqual(by_worker, { [a!.url]: 19_999, [b!.url]: 5_001 });
  deepEqual(
    sessions.slice(0, 3).map(({ session }) => session),
    ['s3', 's9', 's7'],
  );
  const one = listSessions(context, { limit: 1, session: 's5' });
  deepEqual([one.matching, one.sessions.length, one.by_worker], [1, 1, by_worker]);
  equal(listSessions(context, { limit: 0 }).sessions.length, 0);
});
