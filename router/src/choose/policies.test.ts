import assert from 'node:assert/strict';
import { test } from 'node:test';
import { policyNames } from '../config/options.ts';
import { Exchange, type Road } from '../exchange.ts';
import { Fleet } from '../fleet/fleet.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import { seededRandom } from '../kit/rng.ts';
import { RequestBody, RetryBudget } from '../wire/request-body.ts';
import { RequestHead } from '../wire/request-head.ts';
import type { Sink } from '../wire/sink.ts';
import { Chooser } from './choose.ts';
import { policies } from './policies.ts';

function makeFleet(count: number): Fleet {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, ca: null });
  for (let i = 0; i < count; i++) fleet.add(`http://w${i}:1`);
  return fleet;
}

function makeExchange(): Exchange {
  const bytes = Buffer.from('POST / HTTP/1.1\r\nhost: h\r\nx-session-id: s\r\n\r\n');
  const head = new RequestHead();
  assert.ok(head.read(bytes, 0, bytes.length) > 0);
  return new Exchange({} as Road, head, new RequestBody(new RetryBudget(0), () => {}), {} as Sink, 0);
}

const workerOf = (placement: unknown): Worker => (placement as Placement).legs[0]!.worker;

test('the table has a policy for every name', () => {
  assert.deepEqual(Object.keys(policies).sort(), [...policyNames].sort());
});

for (const name of policyNames) {
  test(`${name}: a worker that failed is left out, until nobody is left`, () => {
    const fleet = makeFleet(3);
    const chooser = new Chooser(fleet, policies[name]({ fleet, random: seededRandom(1) }));
    const x = makeExchange();
    for (let left = 3; left > 0; left--) {
      const worker = workerOf(chooser.choose(x));
      assert.ok(!x.tried.includes(worker));
      chooser.release(x);
      x.tried = [...x.tried, worker];
    }
    assert.equal(chooser.choose(x), null);
  });

  test(`${name}: only eligible workers are chosen, and one is enough`, () => {
    const fleet = makeFleet(4);
    const chooser = new Chooser(fleet, policies[name]({ fleet, random: seededRandom(2) }));
    for (const worker of fleet.workers.slice(1)) fleet.setReason(worker, 'unhealthy', true);
    for (let left = 20; left > 0; left--) assert.equal(workerOf(chooser.choose(makeExchange())), fleet.workers[0]);
    fleet.setReason(fleet.workers[0]!, 'breaker', true);
    assert.equal(chooser.choose(makeExchange()), null);
  });
}
