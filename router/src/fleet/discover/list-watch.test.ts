import { equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { waitMs } from './list-watch.ts';

test('waits double, are spread, and have an end', () => {
  equal(waitMs(0, 0.9), 0);
  equal(waitMs(1, 0.5), 200);
  equal(waitMs(4, 0.5), 1_600);
  equal(waitMs(1_000, 0.5), 30_000);
  for (let failures = 1; failures < 50; failures++) {
    ok(waitMs(failures, 0) >= 100, 'never at once');
    ok(waitMs(failures, 0.999) <= 45_000);
  }
});
