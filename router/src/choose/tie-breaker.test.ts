import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { fleetOfSize } from '../../test/harness/policy.ts';
import { TieBreaker } from './tie-breaker.ts';

test('the cheapest is taken; of several the one whose turn it is', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(3), { minLength: 1, maxLength: 8 }), fc.nat(20), (costs, rounds) => {
      const { workers } = fleetOfSize(costs.length);
      const ties = new TieBreaker();
      const cheapest = workers.filter((_, i) => costs[i] === Math.min(...costs));
      for (let round = 0; round <= rounds; round++) {
        assert.equal(
          ties.least(workers, ({ slot }) => costs[slot]!),
          cheapest[round % cheapest.length],
        );
      }
    }),
  );
});

test('the load of a worker that always fails is shared evenly by the others', () => {
  const { workers } = fleetOfSize(4);
  const ties = new TieBreaker();
  const counts = [0, 0, 0, 0];
  for (let round = 0; round < 300; round++) {
    let chosen = ties.least(workers, () => 0);
    if (chosen.slot === 1) chosen = ties.least(workers.toSpliced(1, 1), () => 0);
    counts[chosen.slot]!++;
  }
  assert.deepEqual(counts, [100, 0, 100, 100]);
});

test('it goes on wherever workers have left or come', () => {
  const { workers } = fleetOfSize(5);
  const ties = new TieBreaker();
  const take = (...slots: number[]): number =>
    ties.least(
      slots.map((slot) => workers[slot]!),
      () => 0,
    ).slot;
  assert.equal(take(0, 1, 2), 0);
  assert.equal(take(0, 2), 2);
  assert.equal(take(0, 1, 2, 3, 4), 3);
  assert.equal(take(0, 1), 0);
  // Not in the order of their slots: slots are given out again.
  assert.equal(take(4, 2, 1), 1);
  assert.equal(take(4), 4);
});
