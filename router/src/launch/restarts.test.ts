import assert from 'node:assert/strict';
import { test } from 'node:test';
import { restarts } from './restarts.ts';

const rules = { firstMs: 1_000, maxMs: 30_000, soundMs: 60_000, giveUpMs: 120_000 };

test('waits double up to a bound, until the row of deaths has lasted too long', () => {
  const died = restarts(rules);
  let nowMs = 0;
  const waits: (number | null)[] = [];
  for (;;) {
    const waitMs = died(nowMs, 0);
    waits.push(waitMs);
    if (waitMs === null) break;
    nowMs += waitMs + 500;
  }
  assert.deepEqual(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, null]);
});

test('one that served for a while begins anew', () => {
  const died = restarts(rules);
  assert.equal(died(0, 0), 1_000);
  assert.equal(died(10_000, 59_999), 2_000);
  assert.equal(died(500_000, 60_000), 1_000);
  assert.equal(died(501_000, 0), 2_000);
});
