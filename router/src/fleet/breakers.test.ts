import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type BreakerEvent, Breakers } from './breakers.ts';
import { Fleet } from './fleet.ts';
import type { Worker } from './worker.ts';

function scene(t: TestContext, count: number, maxEjectedPercent: number) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const clock = { nowMs: 0 };
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null });
  const workers = Array.from({ length: count }, (_, i) => fleet.add(`http://w${i}:1`) as Worker);
  const events: BreakerEvent[] = [];
  const limits = { failureThreshold: 5, successThreshold: 2, openMs: 30_000, windowMs: 60_000 };
  const options = { ...limits, isEnabled: true, maxEjectedPercent };
  const breakers = new Breakers(
    fleet,
    options,
    () => clock.nowMs,
    (event) => events.push(event),
  );
  const fail = (worker: Worker, times = 5): void => {
    for (let i = 0; i < times; i++) breakers.failed(worker, 'generation');
  };
  const pass = (ms: number): void => {
    clock.nowMs += ms;
    t.mock.timers.tick(ms);
  };
  return { fleet, workers, breakers, options, events, fail, pass };
}

test('open for 30 s, then one exchange at a time, two good ones close it', (t) => {
  const { fleet, workers, breakers, events, fail, pass } = scene(t, 2, 50);
  const worker = workers[0]!;
  fail(worker);
  assert.equal(fleet.isEligible(worker), false);
  assert.deepEqual(worker.reasonNames(), ['breaker']);
  pass(29_999);
  assert.equal(fleet.isEligible(worker), false);
  pass(1);
  assert.equal(fleet.isEligible(worker), true);
  for (let i = 0; i < 2; i++) {
    assert.equal(worker.isOnTrial, true);
    fleet.begin(worker);
    assert.equal(fleet.isEligible(worker), false, 'one at a time');
    fleet.finish(worker);
    breakers.succeeded(worker, true);
    breakers.trialEnded(worker);
    assert.equal(fleet.isEligible(worker), true);
  }
  assert.deepEqual(events, ['opened', 'half_open', 'closed']);
  assert.equal(worker.isOnTrial, false);
});

test('breakers that are switched off eject no worker and put none on trial, except where a user says so', (t) => {
  const { fleet, workers, breakers, options, fail, pass } = scene(t, 4, 100);
  const [halfOpen, open, forced] = workers as [Worker, Worker, Worker];
  fail(halfOpen);
  pass(30_000);
  fail(open);
  breakers.force(forced, 'open');
  fleet.begin(halfOpen);
  options.isEnabled = false;
  breakers.onOptionsChange();
  assert.deepEqual(
    workers.map((worker) => [worker.isOnTrial, worker.reasonNames()]),
    [
      [false, []],
      [false, []],
      [false, ['breaker']],
      [false, []],
    ],
  );
});

test('a trial whose client left decides nothing: the next one may come', (t) => {
  const { fleet, workers, breakers, fail, pass } = scene(t, 2, 50);
  const worker = workers[0]!;
  fail(worker);
  pass(30_000);
  fleet.begin(worker);
  fleet.finish(worker);
  breakers.trialEnded(worker);
  assert.equal(breakers.stateOf(worker), 'half_open');
  assert.equal(fleet.isEligible(worker), true);
});

test('a trial that fails opens it for as long again', (t) => {
  const { fleet, workers, breakers, fail, pass } = scene(t, 2, 50);
  const worker = workers[0]!;
  fail(worker);
  pass(30_000);
  fleet.begin(worker);
  fail(worker, 1);
  breakers.trialEnded(worker);
  assert.equal(fleet.isEligible(worker), false);
  assert.equal(breakers.nextTrialMs, 30_000);
});

test('not more than half of the fleet is taken out: then panic', (t) => {
  const { fleet, workers, breakers, events, fail } = scene(t, 8, 50);
  for (const worker of workers) fail(worker);
  assert.equal(fleet.eligible.length, 4);
  assert.equal(breakers.panics, 4);
  assert.equal(events.filter((event) => event === 'panic').length, 4);
});

test('the last worker is never taken out, unless all may be', (t) => {
  const two = scene(t, 2, 99);
  for (const worker of two.workers) two.fail(worker);
  assert.equal(two.fleet.eligible.length, 1);
  t.mock.timers.reset();
  const all = scene(t, 2, 100);
  for (const worker of all.workers) all.fail(worker);
  assert.equal(all.fleet.eligible.length, 0);
});

test('the last worker of a model is never taken out', (t) => {
  const { fleet, workers, events, fail } = scene(t, 4, 50);
  for (const [i, worker] of workers.entries()) worker.models = new Map([[i < 2 ? 'a' : 'b', '{}']]);
  for (const worker of workers) fail(worker);
  assert.deepEqual(fleet.eligible, [workers[1], workers[3]]);
  assert.deepEqual(events, ['opened', 'panic', 'opened', 'panic']);
});

test('workers whose engines list no models are taken out', (t) => {
  const { fleet, workers, fail } = scene(t, 3, 50);
  for (const worker of workers) worker.models = new Map();
  fail(workers[0]!);
  assert.deepEqual(fleet.eligible, workers.slice(1));
});

test('of a small fleet one at least may go', (t) => {
  const { fleet, workers, fail } = scene(t, 3, 10);
  for (const worker of workers) fail(worker);
  assert.equal(fleet.eligible.length, 2);
});

test('forced open, forced closed, and back to itself', (t) => {
  const { fleet, workers, breakers, fail, pass } = scene(t, 2, 50);
  const worker = workers[0]!;
  breakers.force(worker, 'open');
  pass(100_000);
  assert.equal(fleet.isEligible(worker), false, 'no time-out ends what a user said');
  for (let i = 0; i < 10; i++) breakers.passedCheck(worker);
  assert.equal(fleet.isEligible(worker), false, 'nor do good health checks');
  breakers.force(worker, 'closed');
  fail(worker, 50);
  assert.equal(fleet.isEligible(worker), true);
  breakers.force(worker, 'auto');
  fail(worker);
  assert.equal(fleet.isEligible(worker), false);
});

test('a state that a user forces is an event where it is another one', (t) => {
  const { workers, breakers, events, fail, pass } = scene(t, 2, 50);
  const worker = workers[0]!;
  for (const state of ['closed', 'auto', 'open', 'open', 'closed', 'closed', 'auto'] as const)
    breakers.force(worker, state);
  assert.deepEqual(events, ['opened', 'closed']);
  fail(worker);
  pass(30_000);
  breakers.force(worker, 'open');
  breakers.force(worker, 'auto');
  assert.deepEqual(events.slice(2), ['opened', 'half_open', 'opened', 'closed']);
});

test('a reset forgets the failures of a closed breaker', (t) => {
  const { fleet, workers, breakers, fail } = scene(t, 2, 50);
  fail(workers[0]!, 4);
  breakers.force(workers[0]!, 'auto');
  fail(workers[0]!, 4);
  assert.equal(fleet.eligible.length, 2);
});

test('a worker that was in quarantine and comes back is tried at once', (t) => {
  const { fleet, workers, breakers, fail } = scene(t, 2, 50);
  const worker = workers[0]!;
  fail(worker);
  breakers.readmitted(worker);
  assert.equal(breakers.stateOf(worker), 'half_open');
  assert.equal(fleet.isEligible(worker), true);
});

test('a removed worker leaves nothing behind', (t) => {
  const { fleet, workers, breakers, fail, pass } = scene(t, 3, 50);
  const worker = workers[0]!;
  fail(worker);
  fleet.remove(worker);
  pass(60_000);
  assert.equal(breakers.stateOf(worker), 'closed');
  assert.equal(breakers.nextTrialMs, 0);
  breakers.failed(worker, 'generation');
  assert.equal(fleet.eligible.length, 2);
});
