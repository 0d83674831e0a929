import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { Pace, RateLimit } from './rates.ts';

test('it tells how long so many departures take, at the pace of the last seconds', () => {
  const pace = new Pace(0);
  let now = 0;
  for (; now < 60_000; now += 100) pace.note(now);
  assert.ok(Math.abs(pace.perSecond(now) - 10) < 0.5, String(pace.perSecond(now)));
  assert.equal(pace.secsUntil(1, now), 1);
  assert.equal(pace.secsUntil(100, now), 10);
  assert.equal(pace.secsUntil(1_000_000, now), 60, 'a minute at most');
  for (; now < 120_000; now += 1_000) pace.note(now);
  assert.equal(pace.secsUntil(10, now), 10, 'it follows');
});

test('from the first seconds on: not what a full memory would hold', () => {
  const pace = new Pace(0);
  for (let now = 0; now <= 1_000; now += 50) pace.note(now);
  assert.equal(pace.secsUntil(20, 1_000), 1);
});

test('before any request has ended the retry delay is short, and grows with the wait', () => {
  const pace = new Pace(0);
  assert.equal(pace.secsUntil(1, 0), 1);
  assert.equal(pace.secsUntil(1, 4_000), 4);
  assert.equal(pace.secsUntil(1, 100_000), 10);
  assert.equal(pace.secsUntil(50, 100_000), 60);
});

test('a second’s worth at once, then as they come', () => {
  const rate = new RateLimit(4, 0);
  assert.deepEqual(
    [0, 0, 0, 0, 0].map((at) => rate.take(at)),
    [true, true, true, true, false],
  );
  assert.equal(rate.msUntil(1, 0), 250);
  assert.equal(rate.msUntil(3, 0), 750);
  assert.deepEqual([rate.take(249), rate.take(250), rate.take(499), rate.take(500)], [false, true, false, true]);
  // What nobody takes for a long time is not kept beyond a second's worth.
  assert.deepEqual(
    Array.from({ length: 5 }, () => rate.take(60_000)),
    [true, true, true, true, false],
  );
});

test('less than one a second: one at a time', () => {
  const rate = new RateLimit(0.1, 0);
  assert.deepEqual([rate.take(0), rate.take(9_999), rate.take(10_000), rate.take(10_000)], [true, false, true, false]);
});

test('never more than the burst and what was added since; a client that waits for retry-after gets a token', () => {
  const gaps = fc.array(fc.double({ min: 0, max: 3_000, noNaN: true }), { minLength: 1, maxLength: 200 });
  fc.assert(
    fc.property(fc.double({ min: 0.05, max: 500, noNaN: true }), gaps, (perSecond, pauses) => {
      const rate = new RateLimit(perSecond, 0);
      let now = 0;
      let taken = 0;
      for (const pause of pauses) {
        now += pause;
        while (rate.take(now)) taken++;
        assert.ok(taken <= Math.max(1, perSecond) + (perSecond * now) / 1000 + 0.01);
        const waitMs = rate.msUntil(1, now);
        assert.ok(waitMs > 0);
        now += waitMs;
        assert.ok(rate.take(now));
        taken++;
      }
    }),
  );
});
