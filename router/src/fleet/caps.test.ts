import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { Fleet } from './fleet.ts';
import type { Worker } from './worker.ts';

const fleetWith = (workerMaxInflight: number): Fleet =>
  new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null, workerMaxInflight });

test('a worker is full at its cap; one below what it has is reached when enough has ended', () => {
  const fleet = fleetWith(0);
  const worker = fleet.add('http://a:1') as Worker;
  let told = 0;
  fleet.onEvent(() => told++);
  for (let i = 0; i < 5; i++) fleet.begin(worker);
  assert.deepEqual([fleet.fullCount, fleet.isFull(worker), fleet.isAllFull], [0, false, false]);
  fleet.setCap(3);
  assert.deepEqual([fleet.fullCount, fleet.isFull(worker), fleet.isAllFull], [1, true, true]);
  fleet.finish(worker);
  fleet.finish(worker);
  assert.equal(fleet.isFull(worker), true);
  fleet.finish(worker);
  assert.deepEqual([fleet.fullCount, fleet.isFull(worker), told], [0, false, 0]);
  fleet.begin(worker);
  fleet.setCap(4);
  assert.deepEqual([fleet.fullCount, told], [0, 1], 'who waits is told of the room');
  fleet.begin(worker);
  assert.equal(fleet.fullCount, 1);
  fleet.setCap(0);
  assert.deepEqual([fleet.fullCount, told], [0, 2]);
});

test('whatever happens, the counts are what counting anew gives', () => {
  const step = fc.record({
    what: fc.constantFrom('begin', 'finish', 'cap', 'unhealthy', 'healthy', 'remove', 'add'),
    at: fc.nat(),
    count: fc.nat({ max: 4 }),
  });
  fc.assert(
    fc.property(fc.constantFrom(0, 3), fc.array(step, { maxLength: 120 }), (general, steps) => {
      const fleet = fleetWith(general);
      const all = new Map<Worker, number>();
      let added = 0;
      const add = (): void => void all.set(fleet.add(`http://w${added++}:1`) as Worker, 0);
      for (let i = 0; i < 3; i++) add();
      for (const { what, at, count } of steps) {
        const busy = [...all.keys()].filter((worker) => all.get(worker)! > 0);
        const worker = fleet.workers[at % Math.max(1, fleet.workers.length)];
        if (what === 'add') add();
        else if (what === 'finish') {
          const done = busy[at % Math.max(1, busy.length)];
          if (done === undefined) continue;
          fleet.finish(done);
          all.set(done, all.get(done)! - 1);
        } else if (worker === undefined) continue;
        else if (what === 'begin') {
          fleet.begin(worker);
          all.set(worker, all.get(worker)! + 1);
        } else if (what === 'cap') fleet.setCap(count);
        else if (what === 'remove') fleet.remove(worker);
        else fleet.setReason(worker, 'unhealthy', what === 'unhealthy');
        const busyOrThere = [...all].filter(([each, n]) => n > 0 || fleet.workers.includes(each));
        assert.equal(fleet.fullCount, busyOrThere.filter(([each]) => fleet.isFull(each)).length);
        assert.equal(
          fleet.strandedInFlight,
          [...all].reduce((sum, [each, n]) => sum + (each.reasons === 0 ? 0 : n), 0),
        );
      }
    }),
    { numRuns: 300 },
  );
});
