import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { RetryAllowance, backoffMs, retryAfterMs } from './retry.ts';

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
