import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Pace } from './pace.ts';

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

test('nobody has left yet: soon at first, later the longer that lasts', () => {
  const pace = new Pace(0);
  assert.equal(pace.secsUntil(1, 0), 1);
  assert.equal(pace.secsUntil(1, 4_000), 4);
  assert.equal(pace.secsUntil(1, 100_000), 10);
  assert.equal(pace.secsUntil(50, 100_000), 60);
});
