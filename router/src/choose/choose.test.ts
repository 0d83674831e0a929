import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Exchange, type Road } from '../exchange.ts';
import { Fleet } from '../fleet/fleet.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import { Chooser } from './choose.ts';
import { RequestBody, RetryBudget } from '../wire/request-body.ts';
import { RequestHead } from '../wire/request-head.ts';
import type { Sink } from '../wire/sink.ts';
import { leastInflight } from './policies/least-inflight.ts';
import type { Hold } from './policy.ts';

const makeExchange = (): Exchange =>
  new Exchange({} as Road, new RequestHead(), new RequestBody(new RetryBudget(0), () => {}), {} as Sink, 0);

function makeFleet(): { fleet: Fleet; a: Worker; b: Worker } {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, ca: null });
  return { fleet, a: fleet.add('http://a:1') as Worker, b: fleet.add('http://b:1') as Worker };
}

test('what is chosen counts as in flight at once, and until it is released, once', () => {
  const { fleet, a, b } = makeFleet();
  const chooser = new Chooser(fleet, leastInflight({ fleet, random: Math.random }));
  const x = makeExchange();
  chooser.choose(x);
  assert.equal(fleet.load(a) + fleet.load(b), 1);
  assert.ok(x.isCounted);
  chooser.release(x);
  chooser.release(x);
  assert.equal(fleet.load(a) + fleet.load(b), 0);
});

test('two exchanges of one tick see each other', () => {
  const { fleet, a, b } = makeFleet();
  const chooser = new Chooser(fleet, leastInflight({ fleet, random: Math.random }));
  for (let left = 4; left > 0; left--) chooser.choose(makeExchange());
  assert.deepEqual([fleet.load(a), fleet.load(b)], [2, 2]);
});

test('all legs of a placement are counted', () => {
  const { fleet, a, b } = makeFleet();
  const pair: Placement = {
    legs: [
      { worker: a, role: 'prefill' },
      { worker: b, role: 'decode' },
    ],
  };
  const chooser = new Chooser(fleet, { needs: 'nothing', choose: () => pair });
  const x = makeExchange();
  assert.equal(chooser.choose(x), pair);
  assert.deepEqual([fleet.load(a), fleet.load(b)], [1, 1]);
  chooser.release(x);
  assert.deepEqual([fleet.load(a), fleet.load(b)], [0, 0]);
});

test('a hold counts nothing, and an exchange that was never placed has nothing to release', () => {
  const { fleet, a, b } = makeFleet();
  const hold: Hold = { hold: 'session busy', maxMs: 10 };
  const chooser = new Chooser(fleet, { needs: 'nothing', choose: () => hold });
  const x = makeExchange();
  assert.equal(chooser.choose(x), hold);
  assert.equal(x.placement, null);
  chooser.release(x);
  assert.deepEqual([fleet.load(a), fleet.load(b)], [0, 0]);
});

test('without a worker the policy is not asked', () => {
  const { fleet, a, b } = makeFleet();
  const chooser = new Chooser(fleet, { needs: 'nothing', choose: () => assert.fail('asked') });
  const x = makeExchange();
  x.tried = [a, b];
  assert.equal(chooser.choose(x), null);
});
