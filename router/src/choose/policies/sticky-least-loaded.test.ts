import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { exchangeOf, fleetOf, fleetOfSize, policyContext } from '../../../test/harness/policy.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import type { Policy } from '../policy.ts';
import { memoryStore } from '../state.ts';
import { stickyLeastLoaded } from './sticky-least-loaded.ts';

function place(policy: Policy, fleet: Fleet, session?: string): Worker {
  const x = exchangeOf(session === undefined ? {} : { session });
  return (policy.choose(x, fleet.eligible) as Placement).legs[0]!.worker;
}

/** Open sessions by worker. */
function sessionsOf(policy: Policy, fleet: Fleet): number[] {
  return policy.explain!(exchangeOf(), fleet.workers).map(({ terms }) => terms['sessions']!);
}

test('sessions stay, and new ones go where the fewest are open', () => {
  const { fleet } = fleetOfSize(4);
  const policy = stickyLeastLoaded(policyContext(fleet));
  const homes = new Map<string, Worker>();
  for (let i = 0; i < 40; i++) {
    homes.set(`s${i}`, place(policy, fleet, `s${i}`));
    const counts = sessionsOf(policy, fleet);
    assert.ok(Math.max(...counts) - Math.min(...counts) <= 1, counts.join(' '));
  }
  for (const [session, home] of homes) assert.equal(place(policy, fleet, session), home);
});

test('a session that has ended makes room for a new one', () => {
  const { fleet } = fleetOfSize(3);
  const policy = stickyLeastLoaded(policyContext(fleet));
  for (let i = 0; i < 30; i++) place(policy, fleet, `s${i}`);
  const home = place(policy, fleet, 's7');
  assert.equal(policy.sessionEnded!('s7'), true);
  assert.equal(policy.sessionEnded!('s7'), false);
  assert.equal(policy.sessionEnded!('never seen'), false);
  assert.equal(place(policy, fleet, 'new'), home);
  assert.deepEqual(policy.describe!()['sessions'], 30);
});

test('open sessions stay balanced, whichever end', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(30), { maxLength: 100 }), (picks) => {
      const { fleet } = fleetOfSize(5);
      const policy = stickyLeastLoaded(policyContext(fleet));
      const open = new Set<string>();
      for (const [i, pick] of picks.entries()) {
        const session = `s${pick}`;
        if (open.has(session)) {
          open.delete(session);
          policy.sessionEnded!(session);
          continue;
        }
        const before = sessionsOf(policy, fleet);
        const worker = place(policy, fleet, session);
        open.add(session);
        assert.equal(before[worker.slot], Math.min(...before), `step ${i}`);
      }
      assert.equal(
        sessionsOf(policy, fleet).reduce((sum, count) => sum + count, 0),
        open.size,
      );
    }),
    { seed: 3 },
  );
});

test('ties go to other workers for other sessions, and to the same one in every router', () => {
  const urls = Array.from({ length: 8 }, (_, i) => `http://10.0.0.${i}:8000`);
  const first = new Map<string, number>();
  for (let i = 0; i < 400; i++) {
    const one = fleetOf(...urls);
    const other = fleetOf(...urls.toReversed());
    const { url } = place(stickyLeastLoaded(policyContext(one.fleet)), one.fleet, `s${i}`);
    assert.equal(place(stickyLeastLoaded(policyContext(other.fleet)), other.fleet, `s${i}`).url, url);
    first.set(url, (first.get(url) ?? 0) + 1);
  }
  const chiSquare = urls.reduce((sum, url) => sum + ((first.get(url) ?? 0) - 50) ** 2 / 50, 0);
  // 99.9 % of chi-square with 7 degrees of freedom.
  assert.ok(chiSquare < 24.3, `chi-square ${chiSquare}: ${[...first.values()].join(' ')}`);
});

test('sessions of a worker that is away spread, count there, and stay there when it is back', () => {
  const { fleet, workers } = fleetOfSize(4);
  const policy = stickyLeastLoaded(policyContext(fleet));
  const sessions = Array.from({ length: 60 }, (_, i) => `s${i}`);
  const before = sessions.map((session) => place(policy, fleet, session));
  fleet.setReason(workers[2]!, 'unhealthy', true);
  const meanwhile = sessions.map((session) => place(policy, fleet, session));
  for (const [i, worker] of meanwhile.entries()) if (before[i] !== workers[2]) assert.equal(worker, before[i]);
  assert.deepEqual(sessionsOf(policy, fleet), [20, 20, 0, 20]);
  fleet.setReason(workers[2]!, 'unhealthy', false);
  assert.deepEqual(
    sessions.map((session) => place(policy, fleet, session)),
    meanwhile,
  );
  for (let i = 0; i < 20; i++) assert.equal(place(policy, fleet, `new ${i}`), workers[2]);
});

test('a session whose worker failed it goes on where it was served', () => {
  const { fleet } = fleetOfSize(3);
  const policy = stickyLeastLoaded(policyContext(fleet));
  const failing = place(policy, fleet, 's');
  const x = exchangeOf({ session: 's' });
  x.tried = [failing];
  const { worker } = (
    policy.choose(
      x,
      fleet.eligible.filter((each) => each !== failing),
    ) as Placement
  ).legs[0]!;
  assert.notEqual(worker, failing);
  assert.equal(place(policy, fleet, 's'), worker);
});

test('a session is open for its time after its last exchange', () => {
  const { fleet, workers } = fleetOfSize(2);
  const context = policyContext(fleet, { sessionTtlSecs: 100 });
  const policy = stickyLeastLoaded(context);
  const x = exchangeOf({ session: 'long' });
  const { worker } = (policy.choose(x, workers) as Placement).legs[0]!;
  policy.begun!(x, worker);
  context.clock.nowMs = 1_000_000;
  assert.equal(policy.describe!()['sessions'], 1);
  policy.ended!(x, worker);
  context.clock.nowMs += 100_000;
  assert.equal(policy.describe!()['sessions'], 1);
  context.clock.nowMs += 100_000 / 16;
  assert.equal(policy.describe!()['sessions'], 0);
});

test('without a session the least loaded worker is taken and nothing is remembered', () => {
  const { fleet, workers } = fleetOfSize(2);
  const policy = stickyLeastLoaded(policyContext(fleet));
  fleet.begin(workers[0]!);
  for (let i = 0; i < 3; i++) assert.equal(place(policy, fleet), workers[1]);
  const x = exchangeOf({ tenant: 'all of them' });
  assert.equal((policy.choose(x, workers) as Placement).legs[0]!.worker, workers[1]);
  policy.begun!(x, workers[1]!);
  policy.ended!(x, workers[1]!);
  assert.equal(policy.describe!()['sessions'], 0);
});

test('sessions outlive the router and forget workers that are removed', () => {
  const store = memoryStore();
  const state = (name: string) => store.open(name);
  const before = fleetOfSize(3);
  const old = stickyLeastLoaded(policyContext(before.fleet, {}, { state }));
  const homes = Array.from({ length: 30 }, (_, i) => place(old, before.fleet, `s${i}`).url);
  old.close!();

  const { fleet } = fleetOf('http://w2:1');
  const policy = stickyLeastLoaded(policyContext(fleet, {}, { state }));
  fleet.add('http://w1:1');
  fleet.add('http://w0:1');
  for (const [i, home] of homes.entries()) assert.equal(place(policy, fleet, `s${i}`).url, home);
  fleet.remove(fleet.get('http://w1:1')!);
  assert.equal(policy.describe!()['sessions'], 20);
  fleet.add('http://w1:1');
  for (let i = 0; i < 10; i++) assert.equal(place(policy, fleet, `new ${i}`).url, 'http://w1:1');
});
