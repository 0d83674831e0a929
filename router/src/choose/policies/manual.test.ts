import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { exchangeOf, fleetOfSize, policyContext } from '../../../test/harness/policy.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import type { Policy } from '../policy.ts';
import { memoryStore } from '../state.ts';
import { manual } from './manual.ts';

function place(policy: Policy, fleet: Fleet, session?: string): Worker {
  const x = exchangeOf(session === undefined ? {} : { session });
  return (policy.choose(x, fleet.eligible) as Placement).legs[0]!.worker;
}

const modes = ['random', 'min_load', 'min_group'] as const;

for (const assignmentMode of modes) {
  test(`${assignmentMode}: a key has one worker and one in its place, whatever is away`, () => {
    fc.assert(
      fc.property(fc.array(fc.record({ key: fc.nat(9), away: fc.nat(3) }), { maxLength: 60 }), (steps) => {
        const { fleet, workers } = fleetOfSize(4);
        const policy = manual(policyContext(fleet, { assignmentMode }));
        const pinned = new Map<number, Worker[]>();
        for (const { key, away } of steps) {
          // Only one is away at a time, so that two candidates are enough.
          fleet.setReason(workers[away]!, 'unhealthy', true);
          const worker = place(policy, fleet, `k${key}`);
          const candidates = pinned.get(key) ?? [];
          const expected = candidates.find((each) => each !== workers[away]);
          if (expected === undefined) pinned.set(key, [...candidates, worker]);
          else assert.equal(worker, expected);
          fleet.setReason(workers[away]!, 'unhealthy', false);
        }
        for (const [key, candidates] of pinned) {
          assert.ok(candidates.length <= 2);
          assert.equal(place(policy, fleet, `k${key}`), candidates[0]);
        }
      }),
      { seed: 5 },
    );
  });
}

test('min_load pins a new key to the worker with the least in flight', () => {
  const { fleet, workers } = fleetOfSize(3);
  const policy = manual(policyContext(fleet, { assignmentMode: 'min_load' }));
  fleet.begin(workers[0]!);
  fleet.begin(workers[2]!);
  assert.equal(place(policy, fleet, 'a'), workers[1]);
  for (let i = 0; i < 5; i++) fleet.begin(workers[1]!);
  assert.equal(place(policy, fleet, 'a'), workers[1], 'never rebalanced');
  assert.equal(place(policy, fleet), workers[2], 'no key: least in flight; ties in turn');
});

test('min_group pins a new key to the worker with the fewest keys', () => {
  const { fleet, workers } = fleetOfSize(3);
  const policy = manual(policyContext(fleet, { assignmentMode: 'min_group' }));
  const counts = [0, 0, 0];
  for (let i = 0; i < 30; i++) counts[place(policy, fleet, `k${i}`).slot]!++;
  assert.deepEqual(counts, [10, 10, 10]);
  for (let i = 0; i < 9; i++) fleet.begin(workers[1]!);
  assert.notEqual(place(policy, fleet), workers[1], 'no key: least in flight');
});

test('random pins keys by chance, and places what has no key by chance', () => {
  const { fleet, workers } = fleetOfSize(4);
  const policy = manual(policyContext(fleet, { assignmentMode: 'random' }));
  assert.equal(new Set(Array.from({ length: 50 }, (_, i) => place(policy, fleet, `k${i}`))).size, workers.length);
  assert.equal(new Set(Array.from({ length: 50 }, () => place(policy, fleet))).size, workers.length);
  assert.deepEqual(policy.describe!()['keys'], 50);
});

test('a key that is idle for too long is pinned anew', () => {
  const { fleet, workers } = fleetOfSize(2);
  const context = policyContext(fleet, { assignmentMode: 'min_load', maxIdleSecs: 60 });
  const policy = manual(context);
  fleet.begin(workers[0]!);
  assert.equal(place(policy, fleet, 'k'), workers[1]);
  fleet.begin(workers[1]!);
  fleet.begin(workers[1]!);
  context.clock.nowMs = 60_000;
  assert.equal(place(policy, fleet, 'k'), workers[1]);
  context.clock.nowMs += 64_000;
  assert.equal(place(policy, fleet, 'k'), workers[0]);
});

test('keys outlive the router with both their workers', () => {
  const store = memoryStore();
  const state = (name: string) => store.open(name);
  const before = fleetOfSize(4);
  const old = manual(policyContext(before.fleet, {}, { state }));
  const first = place(old, before.fleet, 'k');
  before.fleet.setReason(first, 'unhealthy', true);
  const second = place(old, before.fleet, 'k');
  old.close!();

  const { fleet } = fleetOfSize(4);
  const policy = manual(policyContext(fleet, {}, { state }));
  fleet.setReason(fleet.get(first.url)!, 'unhealthy', true);
  assert.equal(place(policy, fleet, 'k').url, second.url);
  fleet.setReason(fleet.get(first.url)!, 'unhealthy', false);
  assert.equal(place(policy, fleet, 'k').url, first.url);
});
