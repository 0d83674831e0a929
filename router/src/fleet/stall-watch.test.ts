import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fleet } from './fleet.ts';
import { StallWatch } from './stall-watch.ts';
import type { Worker } from './worker.ts';

test('a worker with open streams that says nothing for 30 s is reported once, until it speaks', () => {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null });
  const [busy, hung, idle] = ['a', 'b', 'c'].map((name) => fleet.add(`http://${name}:1`) as Worker);
  const reported: Worker[] = [];
  const stalls = new StallWatch(fleet, (worker) => reported.push(worker));
  busy!.openStreams = 3;
  hung!.openStreams = 1;
  for (let now = 0; now <= 60_000; now += 250) {
    busy!.lastReadMs = now;
    stalls.sweep(now);
    assert.equal(stalls.isStalled(hung!), now > 30_000);
  }
  assert.deepEqual(reported, [hung]);
  assert.equal(stalls.isStalled(idle!), false);
  hung!.lastReadMs = 60_100;
  stalls.sweep(60_250);
  assert.equal(stalls.isStalled(hung!), false);
  stalls.sweep(100_000);
  assert.equal(reported.length, 3, 'the busy one is silent by now, too');
  fleet.remove(hung!);
  stalls.sweep(100_250);
  assert.equal(stalls.isStalled(hung!), false);
});
