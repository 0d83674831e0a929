import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import type { FailedAttempt, Failure } from '../exchange.ts';
import { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import { RetryAllowance, backoffMs, excludedOf, excludedOfEachRole, retryAfterMs } from './failover.ts';

const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null });
const [a, b, c] = ['a', 'b', 'c'].map((name) => fleet.add(`http://${name}:1`) as Worker) as [Worker, Worker, Worker];
const failed = (...list: [Worker, Failure][]): FailedAttempt[] =>
  list.map(([worker, failure]) => ({ worker, failure }));

test('somebody new comes first', () => {
  assert.deepEqual(excludedOf(failed([a, 'status']), [a, b, c]), { tried: [a], isRepeat: false });
  assert.deepEqual(excludedOf(failed([a, 'status'], [b, 'connect']), [a, b, c]), { tried: [a, b], isRepeat: false });
});

test('when all were tried: one that was reached, the last only if it is alone', () => {
  assert.deepEqual(excludedOf(failed([a, 'status'], [b, 'status']), [a, b]), { tried: [b], isRepeat: true });
  assert.deepEqual(excludedOf(failed([a, 'status']), [a]), { tried: [], isRepeat: true });
  assert.deepEqual(excludedOf(failed([b, 'connect'], [a, 'status']), [a, b]), { tried: [b], isRepeat: true });
});

test('where no worker can be reached there is no wait', () => {
  assert.equal(excludedOf(failed([a, 'connect'], [b, 'connect']), [a, b]), null);
  assert.equal(excludedOf(failed([a, 'status']), []), null);
});

test('of a pair only the half that failed has to be another', () => {
  const pairs = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null, servesPairs: true });
  const add = (url: string, role: 'prefill' | 'decode') => pairs.add(url, { role }) as Worker;
  const [p, q, d] = [add('http://p:1', 'prefill'), add('http://q:1', 'prefill'), add('http://d:1', 'decode')];
  assert.deepEqual(excludedOfEachRole(failed([p, 'reset']), [p, q, d]), { tried: [p], isRepeat: false });
  assert.deepEqual(excludedOfEachRole(failed([d, 'reset']), [p, q, d]), { tried: [], isRepeat: true });
  assert.deepEqual(excludedOfEachRole(failed([p, 'status'], [d, 'status']), [p, q, d]), { tried: [p], isRepeat: true });
  assert.equal(excludedOfEachRole(failed([d, 'connect']), [p, q, d]), null);
});

const OPTIONS = {
  maxRetries: 3,
  maxBegunRetries: 1,
  initialBackoffMs: 100,
  maxBackoffMs: 10_000,
  backoffMultiplier: 2,
  jitterFactor: 0.1,
  statuses: new Set([500]),
  retryAfterMaxMs: 10_000,
  budget: 0.2,
};

test('waits double from 100 ms to 10 s, a tenth more or less', () => {
  const middle = Array.from({ length: 9 }, (_, n) => backoffMs(OPTIONS, n, 0.5));
  assert.deepEqual(middle, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
  fc.assert(
    fc.property(fc.nat(40), fc.double({ min: 0, max: 1, noNaN: true }), (n, random) => {
      const wait = backoffMs(OPTIONS, n, random);
      const plain = Math.min(10_000, 100 * 2 ** n);
      assert.ok(wait >= plain * 0.9 - 1e-9 && wait <= Math.min(10_000, plain * 1.1 + 1e-9));
    }),
  );
});

test('retry-after: seconds, a date, or nothing to go by', () => {
  assert.equal(retryAfterMs('7', 0), 7_000);
  assert.equal(retryAfterMs('Thu, 01 Jan 1970 00:01:00 GMT', 20_000), 40_000);
  assert.equal(retryAfterMs('Thu, 01 Jan 1970 00:01:00 GMT', 90_000), 0);
  for (const odd of [undefined, '', '-1', '1.5', 'soon', '9'.repeat(30), 'x'.repeat(1_000)]) {
    assert.equal(retryAfterMs(odd, 0), 0, odd);
  }
});

test('the budget: what was saved, then a fifth of the traffic and ten a second', () => {
  const allowance = new RetryAllowance();
  let tries = 0;
  while (allowance.spend(0)) tries++;
  assert.equal(tries, 100);
  for (let i = 0; i < 100; i++) allowance.earn(0.2);
  while (allowance.spend(0)) tries++;
  assert.ok(tries === 119 || tries === 120, `${tries}`);
  while (allowance.spend(1_000)) tries++;
  assert.ok(tries >= 129 && tries <= 130, `${tries}`);
});
