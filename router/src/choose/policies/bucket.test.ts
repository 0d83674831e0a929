import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOfSize, policyContext } from '../../../test/harness/policy.ts';
import { promptOf } from '../../../test/harness/prompt.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import { bucket } from './bucket.ts';

function setUp(count: number) {
  const { fleet, workers } = fleetOfSize(count);
  const context = policyContext(fleet, { bucketAdjustIntervalSecs: 5 });
  const policy = bucket(context);
  const place = (bytes: number): Worker => {
    const x = exchangeOf({ prompt: promptOf('p'.repeat(bytes)) });
    return (policy.choose(x, fleet.eligible) as Placement).legs[0]!.worker;
  };
  return { fleet, workers, policy, place, clock: context.clock };
}

test('after the first interval short prompts go to the first workers, long ones to the last', () => {
  const { workers, place, clock, policy } = setUp(2);
  const before = new Set<Worker>();
  for (let i = 0; i < 100; i++) before.add(place(100));
  for (let i = 0; i < 10; i++) place(1_000);
  assert.equal(before.size, 2, 'not cut yet');
  clock.nowMs = 5_000;
  for (let i = 0; i < 10; i++) {
    assert.equal(place(100), workers[0]);
    assert.equal(place(1_000), workers[1]);
    assert.equal(place(20), workers[0]);
    assert.equal(place(50_000), workers[1]);
  }
  const [end] = policy.describe!()['upToBytes'] as number[];
  assert.ok(end! >= 100 && end! < 1_000, `${end}`);
});

test('where one length is more than a worker can take several share it, the least loaded first', () => {
  const { fleet, workers, place, clock } = setUp(3);
  for (let i = 0; i < 30; i++) place(500);
  clock.nowMs = 5_000;
  place(500);
  fleet.begin(workers[0]!);
  fleet.begin(workers[1]!);
  for (let i = 0; i < 5; i++) assert.equal(place(500), workers[2]);
});

test('when loads lie too far apart the least loaded worker is taken', () => {
  const { fleet, workers, place, clock } = setUp(2);
  for (let i = 0; i < 10; i++) place(100 * (1 + 9 * (i % 2)));
  for (let i = 0; i < 9; i++) place(100);
  clock.nowMs = 5_000;
  place(100);
  for (let i = 0; i < 32; i++) fleet.begin(workers[0]!);
  assert.equal(place(100), workers[0]);
  fleet.begin(workers[0]!);
  assert.equal(place(100), workers[1]);
});

test('without a prompt the least loaded worker is taken', () => {
  const { fleet, workers, policy } = setUp(3);
  fleet.begin(workers[0]!);
  fleet.begin(workers[1]!);
  assert.equal(policy.choose(exchangeOf(), workers), workers[2]!.alone);
});
