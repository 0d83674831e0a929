import assert from 'node:assert/strict';
import { test } from 'node:test';
import { recordedLog } from '../../test/harness/log-lines.ts';
import { exchangeOf, fleetOfSize } from '../../test/harness/policy.ts';
import type { Exchange } from '../exchange.ts';
import { SessionHomes } from '../choose/session-homes.ts';
import { waitWatch } from './waits.ts';

function scene() {
  const { log, lines } = recordedLog();
  const requests: Exchange[] = [];
  const homes = new SessionHomes(
    () => 0,
    () => 1_000,
  );
  const watch = waitWatch(log, { sessionHeaders: ['x-session-id'] }, () => requests, homes);
  const hold = (session: string, sinceMs: number): Exchange => {
    const x = exchangeOf({ session, headers: [`x-request-id: of ${session}`] });
    x.waiting = { phase: 'held', reason: 'kv_cache_full', sinceMs, limitMs: 60_000 };
    requests.push(x);
    return x;
  };
  return { lines, requests, homes, watch, hold, ...fleetOfSize(2) };
}

test('a warning every 30 s while a request is held for more than 30 s: how many, the oldest, whose, which turn, why', () => {
  const { lines, watch, hold, requests, homes, workers } = scene();
  const first = hold('s1', 1_000);
  homes.placed(first, workers[0]!);
  homes.get('s1')!.turns = 4;
  hold('s2', 5_000);
  hold('s3', 20_000);
  watch(31_000);
  assert.equal(lines.length, 0);
  watch(36_000);
  assert.equal(lines.length, 1);
  const [{ level, msg, held, atUnhealthyWorkers }] = lines as [(typeof lines)[0]];
  assert.deepEqual([level, msg, atUnhealthyWorkers], [40, 'requests wait: 2 held for more than 30 s', undefined]);
  const who = { requestId: first.head.requestId, session: 's1', turn: 5 };
  const waitsFor =
    'KV cache space: the contexts of the open sessions exceed what the engines hold; sent anyway after 60 s';
  assert.deepEqual(held, [{ count: 2, oldestSecs: 35, ...who, reason: 'kv_cache_full', waitsFor }]);
  watch(65_999);
  assert.equal(lines.length, 1);
  watch(66_000);
  assert.equal(lines.length, 2);
  requests.length = 0;
  watch(200_000);
  assert.equal(lines.length, 2);
});

test('what waits for another reason has an object of its own, and what is queued is not held', () => {
  const { lines, watch, hold } = scene();
  hold('s1', 1_000);
  hold('s2', 0).waiting = { phase: 'held', reason: 'my own', sinceMs: 500, limitMs: 90_000 };
  hold('s3', 0).waiting = { phase: 'queued', reason: 'rate', sinceMs: 2_000, limitMs: 60_000 };
  watch(40_000);
  const [{ msg, held, queued }] = lines as [(typeof lines)[0]];
  assert.equal(msg, 'requests wait: 2 held for more than 30 s, 1 queued for more than 30 s');
  const of = (rows: unknown) =>
    (rows as Record<string, unknown>[]).map(({ session, turn, waitsFor }) => [session, turn, waitsFor]);
  assert.deepEqual(of(held).slice(0, 1), [
    ['s2', 1, 'the policy (my own): it holds the request; placed or refused after 90 s'],
  ]);
  assert.equal(of(held)[1]![0], 's1');
  assert.deepEqual(of(queued), [
    ['s3', 1, 'the rate limit: --rate-limit-tokens-per-second is reached; refused after 60 s'],
  ]);
});

test('a warning at once when a request waits at an unhealthy worker; a stream there only once it is silent', () => {
  const { lines, watch, requests, fleet, workers } = scene();
  const [ill, well] = workers;
  const at = (worker: (typeof workers)[0], session: string, firstByteMs: number | null = null): Exchange => {
    const x = exchangeOf({ session });
    x.placement = worker.alone;
    x.isCounted = true;
    x.firstByteMs = firstByteMs;
    x.lastByteMs = firstByteMs ?? 0;
    requests.push(x);
    return x;
  };
  at(ill!, 's1');
  at(well!, 's2');
  at(ill!, 's3', 8_000);
  watch(10_000);
  assert.equal(lines.length, 0);
  fleet.setReason(ill!, 'unhealthy', true);
  watch(10_250);
  assert.equal(lines.length, 1);
  assert.equal(lines[0]!.msg, 'requests wait: 1 waiting at unhealthy workers');
  const { session, worker, count } = lines[0]!['atUnhealthyWorkers'] as Record<string, unknown>;
  assert.deepEqual([session, worker, count], ['s1', ill!.url, 1]);
  watch(40_250);
  assert.equal((lines[1]!['atUnhealthyWorkers'] as { count: number }).count, 2);
});
