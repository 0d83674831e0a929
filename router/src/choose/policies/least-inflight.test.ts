import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { exchangeOf, fleetOfSize, policyContext } from '../../../test/harness/policy.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import type { Policy } from '../policy.ts';
import { leastInflight } from './least-inflight.ts';

const x = exchangeOf();

/** A fleet whose workers have this many exchanges under way. */
function fleetWith(loads: readonly number[]): ReturnType<typeof fleetOfSize> & { policy: Policy } {
  const { fleet, workers } = fleetOfSize(loads.length);
  for (const [i, load] of loads.entries()) for (let n = 0; n < load; n++) fleet.begin(workers[i]!);
  return { fleet, workers, policy: leastInflight(policyContext(fleet)) };
}

test('the choice is always one with the least in flight', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(5), { minLength: 1, maxLength: 10 }), fc.nat(20), (loads, rounds) => {
      const { fleet, workers, policy } = fleetWith(loads);
      for (let round = 0; round <= rounds; round++) {
        const { worker } = (policy.choose(x, workers) as Placement).legs[0]!;
        assert.equal(fleet.load(worker), Math.min(...workers.map((each) => fleet.load(each))));
        fleet.begin(worker);
      }
    }),
  );
});

test('ties rotate, idle or busy', () => {
  for (const load of [0, 2]) {
    const { workers, policy } = fleetWith([load, load, load]);
    const order = Array.from({ length: 7 }, () => policy.choose(x, workers));
    assert.deepEqual(
      order,
      [0, 1, 2, 0, 1, 2, 0].map((i) => workers[i]!.alone),
    );
  }
});

test('ties rotate among the least loaded only', () => {
  const { workers, policy } = fleetWith([1, 0, 3, 0]);
  const order = Array.from({ length: 4 }, () => policy.choose(x, workers));
  assert.deepEqual(
    order,
    [1, 3, 1, 3].map((i) => workers[i]!.alone),
  );
});

test('work spreads evenly and stays so when the fleet shrinks', () => {
  const { fleet, workers, policy } = fleetWith([0, 0, 0, 0]);
  const give = (to: readonly Worker[], count: number): void => {
    for (let left = count; left > 0; left--) fleet.begin((policy.choose(x, to) as Placement).legs[0]!.worker);
  };
  give(workers, 20);
  assert.deepEqual(
    workers.map((worker) => fleet.load(worker)),
    [5, 5, 5, 5],
  );
  give(workers.slice(0, 2), 6);
  assert.deepEqual(
    workers.map((worker) => fleet.load(worker)),
    [8, 8, 5, 5],
  );
});
