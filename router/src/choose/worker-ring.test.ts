import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { fleetOfSize } from '../../test/harness/policy.ts';
import type { Worker } from '../fleet/worker.ts';
import { WorkerRing } from './worker-ring.ts';

const keys = Array.from({ length: 300 }, (_, i) => `key ${i}`);

test('only eligible and untried workers are found, whatever the loads', () => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ load: fc.nat(20), isSick: fc.boolean(), isTried: fc.boolean() }), {
        minLength: 1,
        maxLength: 8,
      }),
      fc.constantFrom(0, 1, 1.25, 3),
      fc.string(),
      (states, factor, key) => {
        const { fleet, workers } = fleetOfSize(states.length);
        const ring = new WorkerRing(fleet, factor);
        const tried: Worker[] = [];
        for (const [i, { load, isSick, isTried }] of states.entries()) {
          for (let n = 0; n < load; n++) fleet.begin(workers[i]!);
          fleet.setReason(workers[i]!, 'unhealthy', isSick);
          if (isTried) tried.push(workers[i]!);
        }
        const open = fleet.eligible.filter((worker) => !tried.includes(worker));
        if (open.length === 0) return;
        const found = ring.find(key, open);
        assert.ok(open.includes(found));
        const all = open.reduce((sum, worker) => sum + fleet.load(worker), 1);
        if (factor > 0) assert.ok(fleet.load(found) < Math.ceil((factor * all) / open.length));
      },
    ),
    { seed: 10 },
  );
});

test('a worker that is full gives up new work to the next ones, each key to its own next', () => {
  const { fleet } = fleetOfSize(5);
  const ring = new WorkerRing(fleet, 1.25);
  const home = ring.find(keys[0]!, fleet.eligible);
  const itsKeys = keys.filter((key) => ring.find(key, fleet.eligible) === home);
  fleet.begin(home);
  const next = new Set<Worker>(itsKeys.map((key) => ring.find(key, fleet.eligible)));
  assert.ok(!next.has(home));
  assert.ok(next.size > 1);
});

test('workers that come and go are seen until it is closed', () => {
  const { fleet, workers } = fleetOfSize(2);
  const ring = new WorkerRing(fleet, 0);
  const found = (): Set<Worker> => new Set(keys.map((key) => ring.find(key, fleet.eligible)));
  assert.deepEqual(found(), new Set(workers));
  const newcomer = fleet.add('http://new:1') as Worker;
  assert.deepEqual(found(), new Set([...workers, newcomer]));
  fleet.remove(workers[0]!);
  assert.deepEqual(found(), new Set([workers[1], newcomer]));
  ring.close();
  fleet.add('http://unseen:1');
  assert.deepEqual(found(), new Set([workers[1], newcomer]));
});
