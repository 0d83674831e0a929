import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GrowthLog } from './growth-log.ts';

test('a line has what has grown since the line before, and comes once a minute', (t) => {
  let nowMs = 1;
  t.mock.method(performance, 'now', () => nowMs);
  const growth = new GrowthLog();
  const lines: object[] = [];
  const log = (evicted: number, lost: number): void => growth.log({ evicted, lost }, (more) => void lines.push(more));
  log(0, 0);
  log(3, 0);
  nowMs += 59_999;
  log(4, 2);
  nowMs += 1;
  log(5, 2);
  nowMs += 60_000;
  log(5, 2);
  // A store that is away counts nothing.
  log(0, 0);
  assert.deepEqual(lines, [
    { evicted: 3, lost: 0 },
    { evicted: 2, lost: 2 },
  ]);
});
