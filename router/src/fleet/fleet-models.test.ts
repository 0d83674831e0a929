import { equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { Fleet } from './fleet.ts';
import { FleetModels } from './fleet-models.ts';

test('what a new worker costs does not grow with the fleet', () => {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null });
  const models = new FleetModels(fleet, { timeoutMs: 1, isEnabled: true }, () => {});
  let reads = 0;
  const add = (i: number): number => {
    const before = reads;
    const worker = fleet.add(`http://127.0.0.1:${i}`);
    ok(typeof worker === 'object');
    let known = worker.models;
    Object.defineProperty(worker, 'models', {
      get: () => {
        reads++;
        return known;
      },
      set: (value) => {
        known = value;
      },
    });
    return reads - before;
  };
  const costs = Array.from({ length: 500 }, (_, i) => add(i + 1));
  equal(Math.max(...costs), costs[1]);
  ok(models.areSeveral, 'nothing is known yet');
  while (fleet.workers.length > 0) fleet.remove(fleet.workers[0]!);
  equal(models.areSeveral, false);
  ok(reads <= 4 * 500, `${reads} reads`);
});
