import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { fleetOf } from '../../test/harness/policy.ts';
import type { Asker } from '../engines/ask.ts';
import { Fleet } from './fleet.ts';
import type { Worker } from './worker.ts';
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

test('SGLang’s model has the path of its weights as its name only if the engine does not report another one', async (t) => {
  const { fleet, workers } = fleetOf('http://a:1');
  const worker = workers[0]!;
  const list = { data: [{ id: '/ckpt/step-1', owned_by: 'sglang', parent: null }] };
  let info: () => ReturnType<Asker> = () => Promise.resolve({ status: 401, text: '' });
  const asker: Asker = (path) =>
    path === '/v1/models' ? Promise.resolve({ status: 200, text: JSON.stringify(list) }) : info();
  t.mock.method(worker, 'asker', () => asker);
  const read = async (): Promise<string[]> => {
    const models = new FleetModels(fleet, { timeoutMs: 1, isEnabled: true }, () => {});
    await models.read([worker]);
    return models.isRead(worker) ? models.names() : [];
  };
  deepEqual(await read(), ['/ckpt/step-1']);
  info = () => Promise.reject(new Error('no answer within 1 ms'));
  deepEqual(await read(), [], 'it is asked again');
  info = () => Promise.resolve({ status: 200, text: '{"served_model_name":"m"}' });
  deepEqual(await read(), ['m']);
});

test('a changed model_id is the model of the worker from then on', async (t) => {
  const { fleet, workers } = fleetOf('http://a:1', 'http://b:1');
  const [a, b] = workers as [Worker, Worker];
  let changes = 0;
  const models = new FleetModels(fleet, { timeoutMs: 1, isEnabled: false }, () => changes++);
  for (const worker of workers) fleet.setLabels(worker, { model_id: 'old' });
  equal(models.areSeveral, false);
  fleet.setLabels(a, { model_id: 'new' });
  ok(models.areSeveral);
  deepEqual([models.eligibleFor('new'), models.eligibleFor('old')], [[a], [b]]);
  const before = changes;
  fleet.setLabels(a, { model_id: 'new', group: 'g' });
  fleet.setReason(a, 'breaker', true);
  equal(changes, before);
  fleet.setReason(a, 'breaker', false);
  const asker: Asker = () => Promise.resolve({ status: 200, text: '{"data":[{"id":"own"}]}' });
  t.mock.method(a, 'asker', () => asker);
  await models.read([a]);
  fleet.setLabels(a, {});
  deepEqual([models.eligibleFor('own'), models.names()], [[a], ['own', 'old']]);
  fleet.setLabels(b, {});
  equal(b.models, null);
});
