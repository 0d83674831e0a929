import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { exchangeOf, fleetOfSize, policyContext } from '../../test/harness/policy.ts';
import { Chooser } from '../choose/choose.ts';
import { leastInflight } from '../choose/policies/least-inflight.ts';
import { PolicyTable } from '../choose/policy-table.ts';
import { Breakers } from '../fleet/breakers.ts';
import { healthFeedback } from './health-feedback.ts';

/** A request that is the trial of the first of two workers. */
function trialOf(t: TestContext) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { fleet, workers } = fleetOfSize(2);
  const [sick, well] = workers as [(typeof workers)[0], (typeof workers)[0]];
  const options = { failureThreshold: 1, successThreshold: 1, openMs: 1_000, windowMs: 60_000 };
  const breakers = new Breakers(
    fleet,
    { ...options, isEnabled: true, maxEjectedPercent: 50 },
    () => performance.now(),
    () => {},
  );
  const suspected: string[] = [];
  const feedback = healthFeedback(breakers, { suspect: ({ url }) => suspected.push(url) });
  const table = new PolicyTable({ name: 'tested', policy: leastInflight(policyContext(fleet)) });
  const chooser = new Chooser(fleet, table);
  breakers.failed(sick, 'generation');
  t.mock.timers.tick(1_000);
  const x = exchangeOf();
  x.isGeneration = true;
  x.allowed = () => [sick];
  chooser.place(x);
  assert.deepEqual([x.worker, sick.reasonNames()], [sick, ['breaker']]);
  const ends = (outcome: 'complete' | 'client_left'): void => {
    x.outcome = outcome;
    x.status = 200;
    chooser.released(x);
    feedback.finished!(x);
  };
  return { x, sick, well, chooser, feedback, ends, suspected };
}

test('a trial ends where a swap aborts its generation, which another worker continues', (t) => {
  const { x, sick, well, chooser, feedback, ends, suspected } = trialOf(t);
  x.attemptFailed({ worker: sick, failure: 'aborted' }, true);
  chooser.failed(x, []);
  feedback.attemptFailed!(x, sick, 'aborted', '', 0);
  assert.deepEqual([sick.isOnTrial, sick.reasonNames()], [true, []]);
  x.allowed = () => [well];
  chooser.place(x);
  assert.equal(x.worker, well);
  ends('complete');
  assert.deepEqual([sick.isOnTrial, sick.reasonNames(), suspected], [true, [], []]);
});

test('a request that a gateway sends to a worker on trial is its trial', (t) => {
  const { x, sick, well, chooser, feedback, ends } = trialOf(t);
  chooser.servedBy(x, well);
  feedback.attemptFailed!(x, sick, 'connect', '', 0);
  assert.deepEqual(sick.reasonNames(), ['breaker']);
  t.mock.timers.tick(1_000);
  assert.deepEqual([sick.isOnTrial, sick.reasonNames()], [true, []]);
  chooser.servedBy(x, sick);
  assert.deepEqual(sick.reasonNames(), ['breaker']);
  ends('complete');
  assert.deepEqual([sick.isOnTrial, sick.reasonNames()], [false, []]);
});

test('a trial ends where a gateway sends its request to another worker', (t) => {
  const { x, sick, well, chooser, ends } = trialOf(t);
  chooser.servedBy(x, well);
  ends('client_left');
  assert.deepEqual([sick.isOnTrial, sick.reasonNames()], [true, []]);
});
