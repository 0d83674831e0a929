import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { seededRandom } from './rng.ts';

const take = (seed: number, count: number): number[] => Array.from({ length: count }, seededRandom(seed));

test('a seed gives its one sequence, another seed another', () => {
  fc.assert(
    fc.property(fc.nat(), (seed) => {
      assert.deepEqual(take(seed, 20), take(seed, 20));
      assert.notDeepEqual(take(seed, 20), take(seed + 1, 20));
    }),
  );
});

test('every number is in [0, 1)', () => {
  fc.assert(
    fc.property(fc.integer(), (seed) => {
      for (const value of take(seed, 50)) assert.ok(value >= 0 && value < 1, `${value}`);
    }),
  );
});

test('numbers fall into sixteen bins evenly', () => {
  const draws = 160_000;
  const bins = Array.from({ length: 16 }, () => 0);
  for (const value of take(7, draws)) bins[Math.floor(value * 16)]!++;
  const expected = draws / 16;
  const chiSquare = bins.reduce((sum, seen) => sum + (seen - expected) ** 2 / expected, 0);
  // 99.9 % of chi-square with 15 degrees of freedom.
  assert.ok(chiSquare < 37.7, `chi-square ${chiSquare}`);
});
