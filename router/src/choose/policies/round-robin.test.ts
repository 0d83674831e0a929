import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOfSize } from '../../../test/harness/policy.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import { roundRobin } from './round-robin.ts';

const x = exchangeOf();

test('every worker gets its turn, exactly', () => {
  const { workers } = fleetOfSize(3);
  const policy = roundRobin();
  const order = Array.from({ length: 9 }, () => policy.choose(x, workers));
  assert.deepEqual(
    order,
    [0, 1, 2, 0, 1, 2, 0, 1, 2].map((i) => workers[i]!.alone),
  );
});

test('it goes on when workers come and go', () => {
  const { workers } = fleetOfSize(4);
  const policy = roundRobin();
  const take = (from: readonly Worker[]): number =>
    workers.indexOf((policy.choose(x, from) as Placement).legs[0]!.worker);
  assert.deepEqual([take(workers), take(workers), take(workers)], [0, 1, 2]);
  assert.equal(take(workers.slice(0, 2)), 0);
  assert.equal(take(workers), 1);
  assert.equal(take(workers.slice(0, 1)), 0);
  assert.equal(take(workers.slice(0, 1)), 0);
});
