import assert from 'node:assert/strict';
import { setImmediate as nextTick } from 'node:timers/promises';
import { test } from 'node:test';
import { fleetOfSize, policyContext } from '../../test/harness/policy.ts';
import { FleetModels } from '../fleet/fleet-models.ts';
import type { Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import { PlacedRequest } from '../placed-request.ts';
import { policies } from './built-in-policies.ts';
import { type Choice, Chooser } from './choose.ts';
import { FullWorkers } from './full-workers.ts';
import { HoldQueue } from './hold-queue.ts';
import { PolicyTable } from './policy-table.ts';
import { SessionHomes } from './session-homes.ts';

interface Facts {
  readonly session?: string;
  readonly model?: string;
  readonly tokens?: number;
  readonly tried?: readonly Worker[];
}

/** A request as plain data: no exchange, no socket, no body. */
function requestOf({ session, model, tokens, tried }: Facts = {}): PlacedRequest {
  const x = new PlacedRequest();
  if (session !== undefined) x.key = { kind: 'session', value: session, source: 'header:x-session-id' };
  if (model !== undefined) x.model = model;
  if (tried !== undefined) x.tried = tried;
  if (tokens === undefined) return x;
  x.bodyBytes = 4 * tokens;
  x.prompt = { field: 'prompt', blocks: Uint32Array.of(tokens), bytes: 4 * tokens, tokens, hash: tokens };
  return x;
}

function placementOf(name: keyof typeof policies, count = 3, cap = 0, queueSize = 1) {
  const { fleet, workers } = fleetOfSize(count);
  fleet.setCap(cap);
  const models = new FleetModels(fleet, { timeoutMs: 1_000, isEnabled: false }, () => {});
  const homes = new SessionHomes(
    () => 0,
    () => 1_000,
  );
  const table = new PolicyTable({ name, policy: policies[name](policyContext(fleet)) });
  const queue: HoldQueue = new HoldQueue({ setOf: (x) => placement.setOf(x) });
  const full = new FullWorkers(fleet, queue, { queueSize, queueTimeoutMs: 60_000 }, models);
  const placement = new Chooser(fleet, table, { queue, full, models, homes });
  const ends = (x: PlacedRequest): void => {
    x.outcome = 'complete';
    x.status = 200;
    placement.released(x);
    placement.retryHeld();
  };
  return { fleet, workers, placement, ends };
}

function workerOf(choice: Choice): Worker {
  assert.ok(choice !== null && 'legs' in choice);
  return choice.legs[0]!.worker;
}

test('a request is placed by its facts, and counts until it is released', () => {
  const { fleet, workers, placement, ends } = placementOf('least_inflight');
  const requests = workers.map(() => requestOf());
  assert.deepEqual(new Set(requests.map((x) => workerOf(placement.place(x)))), new Set(workers));
  assert.ok(workers.every((worker) => fleet.load(worker) === 1));
  requests.forEach(ends);
  assert.ok(workers.every((worker) => fleet.load(worker) === 0));
});

test('a list of models is no turn of the session whose header it has', () => {
  const { placement, ends } = placementOf('rollout');
  for (let i = 0; i < 6; i++) {
    const x = requestOf({ session: 's' });
    x.readsState = true;
    x.cacheUse = 'nothing';
    placement.place(x);
    assert.equal(x.why, 'policy');
    ends(x);
  }
  const x = requestOf({ session: 's', tokens: 1_000 });
  placement.place(x);
  assert.equal(x.why, 'new');
});

test('the turns of a session go to one worker, with any policy that keeps sessions', () => {
  for (const name of ['consistent_hash', 'sticky_least_loaded', 'rollout', 'manual'] as const) {
    const { placement, ends } = placementOf(name);
    const homes = [1, 2, 3].map((turn) => {
      const x = requestOf({ session: 's', tokens: 1_000 * turn });
      const worker = workerOf(placement.place(x));
      assert.equal(x.why, turn === 1 ? 'new' : 'home', name);
      x.usage = { promptTokens: 1_000 * turn, cachedTokens: null, outputTokens: 500 };
      ends(x);
      return worker;
    });
    assert.equal(new Set(homes).size, 1, name);
  }
});

test('after a failure the next candidate gets the request; without one it has no worker', () => {
  const { workers, placement, fleet } = placementOf('consistent_hash');
  const x = requestOf({ session: 's' });
  const tried: Worker[] = [];
  for (let attempt = 0; attempt < workers.length; attempt++) {
    const worker = workerOf(placement.place(x));
    assert.ok(!tried.includes(worker));
    assert.equal(x.why, attempt === 0 ? 'new' : 'retry');
    tried.push(worker);
    placement.failed(x, [...tried]);
    assert.equal(fleet.load(worker), 0);
  }
  assert.equal(placement.place(x), null);
});

test('excluded workers get nothing, and a model that no worker serves is refused', () => {
  const { fleet, workers, placement } = placementOf('least_inflight', 2);
  for (let i = 0; i < 4; i++) assert.equal(workerOf(placement.place(requestOf({ tried: [workers[0]!] }))), workers[1]);
  const own = fleet.add('http://own:1', { labels: { model_id: 'own' } }) as Worker;
  fleet.add('http://other:1', { labels: { model_id: 'other' } });
  assert.equal(workerOf(placement.place(requestOf({ model: 'own' }))), own);
  const refused = placement.place(requestOf({ model: 'unknown', tried: [...workers] }));
  assert.ok(refused instanceof RouterError);
});

test('a hold has a reason and a maximum; the request is placed again when a worker has room', async () => {
  const { placement, ends } = placementOf('round_robin', 1, 1);
  const [first, second] = [requestOf(), requestOf()];
  workerOf(placement.place(first));
  const hold = placement.place(second);
  assert.deepEqual(hold, { hold: 'workers_full', maxMs: 60_000 });
  let choice: Choice = null;
  assert.ok(hold !== null && 'hold' in hold);
  placement.wait(second, hold, () => (choice = placement.place(second)));
  assert.equal(second.waiting!.reason, 'workers_full');
  const third = placement.place(requestOf());
  assert.ok(third instanceof RouterError && third.code === 'too_many_requests', 'one may wait');
  ends(first);
  await nextTick();
  workerOf(choice);
  assert.equal(second.waiting, null);
});

test('a request that was held for the maximum is refused', async () => {
  const { fleet } = fleetOfSize(1);
  const policy = { needs: 'nothing' as const, choose: () => ({ hold: 'never', maxMs: 5 }) };
  const placement = new Chooser(fleet, new PolicyTable({ name: 'holds', policy }));
  const x = requestOf();
  const hold = placement.place(x);
  assert.ok(hold !== null && 'hold' in hold);
  await new Promise<void>((resolve) => placement.wait(x, hold, resolve));
  const refused = placement.place(x);
  assert.ok(refused instanceof RouterError && refused.code === 'queue_timeout');
});

test('of several models, a new request passes only those that wait for another one', async () => {
  const { fleet, placement, ends } = placementOf('least_inflight', 0, 1, 10);
  const add = (model: string): Worker => fleet.add(`http://${model}:1`, { labels: { model_id: model } }) as Worker;
  const [a, b] = [add('a'), add('b')];
  const placed: PlacedRequest[] = [];
  const place = (x: PlacedRequest): void => {
    const choice = placement.place(x);
    assert.ok(choice !== null && !(choice instanceof RouterError));
    if ('hold' in choice) placement.wait(x, choice, () => place(x));
    else placed.push(x);
  };
  const [first, waits, comes, other] = ['a', 'a', 'a', 'b'].map((model) => requestOf({ model })) as [
    PlacedRequest,
    PlacedRequest,
    PlacedRequest,
    PlacedRequest,
  ];
  place(first);
  place(waits);
  placement.released(first);
  place(comes);
  place(other);
  assert.deepEqual(placed, [first, other]);
  assert.deepEqual([first.worker, other.worker], [a, b]);
  await nextTick();
  assert.equal(placed.at(-1), waits);
  ends(waits);
  await nextTick();
  assert.equal(placed.at(-1), comes);
});

test('a worker that a gateway did not send the request to gets a held one', async () => {
  const { workers, placement } = placementOf('round_robin', 2, 1);
  const [first, second, third] = [requestOf(), requestOf(), requestOf()];
  const chosen = workerOf(placement.place(first));
  const other = workerOf(placement.place(second));
  assert.deepEqual(new Set([chosen, other]), new Set(workers));
  const hold = placement.place(third);
  assert.ok(hold !== null && 'hold' in hold);
  let choice: Choice = null;
  placement.wait(third, hold, () => (choice = placement.place(third)));
  placement.servedBy(first, other);
  await nextTick();
  assert.equal(workerOf(choice), chosen);
});
