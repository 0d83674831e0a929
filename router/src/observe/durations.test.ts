import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { Timing } from './durations.ts';

test('a timing has the mean of the last minute, and the sum of all', () => {
  const timing = new Timing();
  equal(timing.recentSecs(1_000_000), null);
  timing.observe(1, 1_000_000);
  timing.observe(3, 1_030_000);
  equal(timing.recentSecs(1_030_000), 2);
  equal(timing.recentSecs(1_059_999), 2);
  equal(timing.recentSecs(1_060_000), 3, 'the first one is a minute old');
  equal(timing.recentSecs(1_090_000), null);
  // The same place of the ring, a minute later.
  timing.observe(5, 1_061_000);
  equal(timing.recentSecs(1_061_000), 4);
  deepEqual([timing.sumSecs, timing.count], [9, 3]);
});
