import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import { SlowStart } from './usable-workers.ts';

function scene() {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null });
  const [back, other] = ['back', 'other'].map((name) => fleet.add(`http://${name}:1`) as Worker) as [Worker, Worker];
  const clock = { nowMs: 0 };
  return { fleet, back, other, clock, slowStart: new SlowStart(fleet, () => clock.nowMs) };
}

test('two at first, twice as many every second, then whatever comes', () => {
  const { fleet, back, other, clock, slowStart } = scene();
  slowStart.begin(back);
  for (let load = 0; load < 3_000; load++) {
    const second = Math.max(0, Math.floor(Math.log2(load / 2)) + 1);
    for (const [at, isSpared] of [
      [second - 1, true],
      [second, false],
    ] as const) {
      if (at < 0 || at >= 10) continue;
      clock.nowMs = at * 1_000;
      assert.equal(!slowStart.withoutSpared([back, other]).includes(back), isSpared && load >= 2 * 2 ** at, `${load}`);
    }
    fleet.begin(back);
  }
  clock.nowMs = 10_000;
  assert.deepEqual(slowStart.withoutSpared([back, other]), [back, other]);
});

test('the only worker left gets all requests', () => {
  const { fleet, back, other, slowStart } = scene();
  slowStart.begin(back);
  for (let i = 0; i < 5; i++) fleet.begin(back);
  assert.deepEqual(slowStart.withoutSpared([back]), [back]);
  slowStart.begin(other);
  assert.deepEqual(slowStart.withoutSpared([back, other]), [other]);
});
