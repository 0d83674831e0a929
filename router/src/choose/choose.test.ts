import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOf, policyContext } from '../../test/harness/policy.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import { Chooser } from './choose.ts';
import { leastInflight } from './policies/least-inflight.ts';
import type { Hold, Policy } from './policy.ts';
import { PolicyTable } from './policy-table.ts';
import { SessionHomes } from './session-homes.ts';

const urls = ['http://a:1', 'http://b:1'] as const;

const chooserOf = (fleet: Fleet, policy: Policy): Chooser =>
  new Chooser(fleet, new PolicyTable({ name: 'tested', policy }));

function twoWorkers(): { fleet: Fleet; a: Worker; b: Worker; loads: () => number[] } {
  const { fleet, workers } = fleetOf(...urls);
  const [a, b] = workers as [Worker, Worker];
  return { fleet, a, b, loads: () => [fleet.load(a), fleet.load(b)] };
}

test('what is chosen counts as in flight at once, and until it is released, once', () => {
  const { fleet, loads } = twoWorkers();
  const chooser = chooserOf(fleet, leastInflight(policyContext(fleet)));
  const x = exchangeOf();
  chooser.place(x);
  assert.deepEqual(loads(), [1, 0]);
  assert.ok(x.isCounted);
  chooser.released(x);
  chooser.released(x);
  assert.deepEqual(loads(), [0, 0]);
});

test('a choice that fails before it counts leaves no worker below 0', () => {
  const { fleet, a, b, loads } = twoWorkers();
  const homes = new SessionHomes(
    () => 0,
    () => 1_000,
  );
  homes.onMoved = () => {
    throw new Error('on purpose');
  };
  const targets = [a, b];
  const policy: Policy = { needs: 'nothing', choose: () => targets.shift()!.alone };
  const table = new PolicyTable({ name: 'tested', policy });
  const chooser = new Chooser(fleet, table, { homes });
  for (const expected of [
    [1, 0],
    [0, 0],
  ]) {
    const x = exchangeOf({ session: 's' });
    const choice = chooser.place(x);
    assert.equal(choice instanceof RouterError, expected[0] === 0);
    assert.deepEqual(loads(), expected);
    chooser.released(x);
    assert.deepEqual(loads(), [0, 0]);
  }
});

test('a named worker that was removed gets no request, and its slot counts none', () => {
  const { fleet, a, b, loads } = twoWorkers();
  const chooser = chooserOf(fleet, leastInflight(policyContext(fleet)));
  fleet.remove(a);
  const c = fleet.add('http://c:1') as Worker;
  assert.equal(c.slot, a.slot);
  const x = exchangeOf();
  x.target = a;
  const choice = chooser.place(x);
  assert.ok(choice instanceof RouterError);
  assert.equal(choice.code, 'worker_not_found');
  assert.deepEqual(loads(), [0, 0]);
  x.target = b;
  assert.equal(chooser.place(x), b.alone);
});

test('two exchanges of one tick see each other', () => {
  const { fleet, loads } = twoWorkers();
  const chooser = chooserOf(fleet, leastInflight(policyContext(fleet)));
  for (let left = 4; left > 0; left--) chooser.place(exchangeOf());
  assert.deepEqual(loads(), [2, 2]);
});

test('all legs of a placement are counted and reported to the policy', () => {
  const { fleet, a, b, loads } = twoWorkers();
  const pair: Placement = {
    legs: [
      { worker: a, role: 'prefill' },
      { worker: b, role: 'decode' },
    ],
  };
  const heard: string[] = [];
  const chooser = chooserOf(fleet, {
    needs: 'nothing',
    choose: () => pair,
    begun: (_x, { url }) => heard.push(`begun ${url} with ${fleet.load(fleet.get(url)!)}`),
    ended: (_x, { url }) => heard.push(`ended ${url}`),
  });
  const x = exchangeOf();
  assert.equal(chooser.place(x), pair);
  assert.deepEqual(loads(), [1, 1]);
  chooser.released(x);
  chooser.released(x);
  assert.deepEqual(loads(), [0, 0]);
  assert.deepEqual(heard, [
    'begun http://a:1 with 1',
    'begun http://b:1 with 1',
    'ended http://a:1',
    'ended http://b:1',
  ]);
});

test('a hold counts nothing, and an exchange that was never placed has nothing to release', () => {
  const { fleet, loads } = twoWorkers();
  const hold: Hold = { hold: 'session busy', maxMs: 10 };
  const chooser = chooserOf(fleet, { needs: 'nothing', choose: () => hold });
  const x = exchangeOf();
  assert.equal(chooser.place(x), hold);
  assert.equal(x.placement, null);
  chooser.released(x);
  assert.deepEqual(loads(), [0, 0]);
});

test('without a worker the policy is not asked', () => {
  const { fleet, a, b } = twoWorkers();
  const chooser = chooserOf(fleet, { needs: 'nothing', choose: () => assert.fail('asked') });
  const x = exchangeOf();
  x.tried = [a, b];
  assert.equal(chooser.place(x), null);
});

test('the end of a session is reported when its last turn succeeds, not when it fails', () => {
  const { fleet } = twoWorkers();
  const ended: string[] = [];
  const chooser = chooserOf(fleet, {
    ...leastInflight(policyContext(fleet)),
    sessionEnded: (session) => ended.push(session) > 0,
  });
  const failed = exchangeOf({ session: 'failed', isLastTurn: true });
  chooser.place(failed);
  chooser.released(failed);
  const answered = exchangeOf({ session: 'answered', isLastTurn: true });
  chooser.place(answered);
  answered.outcome = 'complete';
  chooser.released(answered);
  const goesOn = exchangeOf({ session: 'goes on' });
  chooser.place(goesOn);
  goesOn.outcome = 'complete';
  chooser.released(goesOn);
  assert.deepEqual(ended, ['answered']);
});

test('what a policy placed is reported to it, also when another one has taken its place', () => {
  const { fleet } = twoWorkers();
  const reported: string[] = [];
  const named = (name: string) => ({
    name,
    policy: { ...leastInflight(policyContext(fleet)), ended: () => void reported.push(name) },
  });
  const table = new PolicyTable(named('old'));
  const chooser = new Chooser(fleet, table);
  const x = exchangeOf();
  chooser.place(x);
  table.set('', named('new'));
  chooser.released(x);
  assert.deepEqual(reported, ['old']);
});
