import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LineLimit } from './request-logs.ts';

test('the first lines of each kind in a minute pass, the others are summed up when the minute is over', () => {
  const sums: string[] = [];
  const limit = new LineLimit(2, (kind, count) => sums.push(`${kind} ${count}`));
  const passed = (kind: string, atMs: number, times: number): number =>
    Array.from({ length: times }, () => limit.take(kind, atMs)).filter(Boolean).length;
  assert.equal(passed('a', 0, 5), 2);
  assert.equal(passed('b', 30_000, 2), 2);
  limit.sweep(59_999);
  assert.deepEqual(sums, []);
  limit.sweep(60_000);
  assert.deepEqual(sums, ['a 3']);
  assert.equal(passed('a', 60_001, 3), 2, 'a new minute');
  limit.sweep(90_000);
  assert.deepEqual(sums, ['a 3'], 'nothing of b was left out');
  limit.flush();
  assert.deepEqual(sums, ['a 3', 'a 1']);
});
