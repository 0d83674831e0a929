import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOfSize, policyContext } from '../../test/harness/policy.ts';
import { withFaultBoundary } from './fault-boundary.ts';
import { policies } from './built-in-policies.ts';
import type { Policy } from './policy.ts';

const { fleet, workers } = fleetOfSize(2);
const x = exchangeOf();
const fail = (): never => {
  throw new Error('on purpose');
};

test('whatever a policy throws: it is reported, and only choose throws on', () => {
  const broken: Policy = {
    needs: 'key',
    choose: fail,
    begun: fail,
    ended: fail,
    heldRank: fail,
    nextHeld: fail,
    sessionEnded: fail,
    flushed: fail,
    explain: fail,
    describe: fail,
    close: fail,
  };
  const faults: string[] = [];
  const { name, policy } = withFaultBoundary({ name: 'mine', policy: broken }, (where, error, count) =>
    faults.push(`${where} ${(error as Error).message} ${count}`),
  );
  assert.deepEqual([name, policy.needs], ['mine', 'key']);
  assert.throws(() => policy.choose(x, workers), /on purpose/);
  policy.begun!(x, workers[0]!);
  policy.ended!(x, workers[0]!);
  assert.equal(policy.heldRank!(x), 0);
  // Whoever waits is asked, first come first, rather than never.
  assert.equal(policy.nextHeld!([x, exchangeOf()], []), x);
  assert.equal(policy.nextHeld!([], []), null);
  assert.equal(policy.sessionEnded!('s'), false);
  policy.flushed!(workers[0]!, 'engine');
  assert.deepEqual([policy.explain!(x, workers), policy.describe!()], [[], {}]);
  policy.close!();
  const methods = [
    'choose',
    'begun',
    'ended',
    'heldRank',
    'nextHeld',
    'nextHeld',
    'sessionEnded',
    'flushed',
    'explain',
    'describe',
    'close',
  ];
  assert.deepEqual(
    faults,
    methods.map((method, i) => `${method} on purpose ${method === methods[i - 1] ? 2 : 1}`),
  );
});

test('faults that come again and again are reported ever more rarely', () => {
  const counts: number[] = [];
  const { policy } = withFaultBoundary(
    { name: 'mine', policy: { needs: 'nothing', choose: fail } },
    (_where, _error, count) => counts.push(count),
  );
  for (let i = 0; i < 1_000; i++) assert.throws(() => policy.choose(x, workers));
  assert.deepEqual(counts, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
});

test('a policy that is well is as it was: its answers, and what it lacks', () => {
  for (const [name, factory] of Object.entries(policies)) {
    const bare = factory(policyContext(fleet));
    const { policy } = withFaultBoundary({ name, policy: bare }, () => assert.fail(name));
    assert.deepEqual(Object.keys(policy).toSorted(), Object.keys(bare).toSorted());
    assert.ok(policy.choose(x, workers));
    bare.close?.();
  }
});

test('methods of a class keep their object', () => {
  class Mine implements Policy {
    readonly needs = 'nothing';
    #last = 0;
    choose(): ReturnType<Policy['choose']> {
      return workers[this.#last++ % 2]!.alone;
    }
    describe(): Record<string, number> {
      return { last: this.#last };
    }
  }
  const { policy } = withFaultBoundary({ name: 'mine', policy: new Mine() }, () => assert.fail('a fault'));
  policy.choose(x, workers);
  assert.deepEqual(policy.describe!(), { last: 1 });
});
