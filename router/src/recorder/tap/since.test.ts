import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readSince } from './since.ts';

test('a time is read as people write it', () => {
  const now = 1_800_000_000_000;
  assert.equal(readSince('90m', now), now - 5_400_000);
  assert.equal(readSince('1.5d', now), now - 129_600_000);
  assert.equal(readSince('1800000000.5', now), now + 500);
  assert.equal(readSince('2027-01-15T08:00:00Z', now), now);
  for (const wrong of ['', 'yesterday', '5 m', '-5m', '5y', '-5', 'day 1', '1800000000500'])
    assert.ok(Number.isNaN(readSince(wrong, now)), wrong);
});
