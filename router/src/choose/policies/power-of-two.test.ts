import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Exchange } from '../../exchange.ts';
import { Fleet } from '../../fleet/fleet.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import { seededRandom } from '../../kit/rng.ts';
import { powerOfTwo } from './power-of-two.ts';

const x = { tried: [] as readonly Worker[] } as Exchange;

function fleetOf(count: number): { fleet: Fleet; workers: Worker[] } {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, ca: null });
  return { fleet, workers: Array.from({ length: count }, (_, i) => fleet.add(`http://w${i}:1`) as Worker) };
}

test('of two workers the less loaded one is always taken', () => {
  const { fleet, workers } = fleetOf(2);
  const policy = powerOfTwo({ fleet, random: seededRandom(3) });
  fleet.begin(workers[0]!);
  for (let i = 0; i < 200; i++) assert.equal(policy.choose(x, workers), workers[1]!.alone);
});

test('the most loaded of many is never taken, as the other of the pair has less', () => {
  const { fleet, workers } = fleetOf(5);
  const policy = powerOfTwo({ fleet, random: seededRandom(4) });
  for (let i = 0; i < 10; i++) fleet.begin(workers[2]!);
  const seen = new Set<Worker>();
  for (let i = 0; i < 500; i++) seen.add((policy.choose(x, workers) as Placement).legs[0]!.worker);
  assert.deepEqual(new Set(workers.filter((_, i) => i !== 2)), seen);
});

test('with equal loads every worker is as likely as the others', () => {
  const { fleet, workers } = fleetOf(4);
  const policy = powerOfTwo({ fleet, random: seededRandom(5) });
  const counts = workers.map(() => 0);
  for (let i = 0; i < 40_000; i++) {
    counts[workers.indexOf((policy.choose(x, workers) as Placement).legs[0]!.worker)]!++;
  }
  const chiSquare = counts.reduce((sum, seen) => sum + (seen - 10_000) ** 2 / 10_000, 0);
  // 99.9 % of chi-square with 3 degrees of freedom.
  assert.ok(chiSquare < 16.3, `chi-square ${chiSquare}: ${counts.join(' ')}`);
});

test('one worker is taken', () => {
  const { fleet, workers } = fleetOf(1);
  for (const chance of [0, 0.5, 1 - 2 ** -32]) {
    assert.equal(powerOfTwo({ fleet, random: () => chance }).choose(x, workers), workers[0]!.alone);
  }
});
