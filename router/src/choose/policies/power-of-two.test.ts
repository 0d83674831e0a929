import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOfSize, policyContext } from '../../../test/harness/policy.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import { powerOfTwo } from './power-of-two.ts';

const x = exchangeOf();

test('of two workers the less loaded one is always taken', () => {
  const { fleet, workers } = fleetOfSize(2);
  const policy = powerOfTwo(policyContext(fleet));
  fleet.begin(workers[0]!);
  for (let i = 0; i < 200; i++) assert.equal(policy.choose(x, workers), workers[1]!.alone);
});

test('the most loaded of many is never taken, as the other of the pair has less', () => {
  const { fleet, workers } = fleetOfSize(5);
  const policy = powerOfTwo(policyContext(fleet));
  for (let i = 0; i < 10; i++) fleet.begin(workers[2]!);
  const seen = new Set<Worker>();
  for (let i = 0; i < 500; i++) seen.add((policy.choose(x, workers) as Placement).legs[0]!.worker);
  assert.deepEqual(new Set(workers.filter((_, i) => i !== 2)), seen);
});

test('one worker is taken', () => {
  const { fleet, workers } = fleetOfSize(1);
  for (const chance of [0, 0.5, 1 - 2 ** -32]) {
    const policy = powerOfTwo(policyContext(fleet, {}, { random: () => chance }));
    assert.equal(policy.choose(x, workers), workers[0]!.alone);
  }
});

test('the ends of chance make a pair of different workers', () => {
  const { fleet, workers } = fleetOfSize(3);
  fleet.begin(workers[0]!);
  fleet.begin(workers[2]!);
  for (const [chance, expected] of [
    [0, 1],
    [1 - 2 ** -32, 1],
  ] as const) {
    const policy = powerOfTwo(policyContext(fleet, {}, { random: () => chance }));
    assert.equal(policy.choose(x, workers), workers[expected]!.alone);
  }
});

test('requests of other routers count, where the engine reports them', () => {
  const { fleet, workers } = fleetOfSize(2);
  const policy = powerOfTwo(policyContext(fleet));
  fleet.begin(workers[0]!);
  workers[1]!.foreignLoad = 2;
  for (let i = 0; i < 100; i++) assert.equal(policy.choose(exchangeOf(), workers), workers[0]!.alone);
});
