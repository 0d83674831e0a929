import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { exchangeOf, fleetOf, fleetOfSize, type Known, policyContext } from '../../test/harness/policy.ts';
import { promptOf } from '../../test/harness/prompt.ts';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import { Chooser } from './choose.ts';
import { policies } from './built-in-policies.ts';
import type { PolicyFactory } from './policy.ts';
import { PolicyTable } from './policy-table.ts';

const workerOf = (placement: unknown): Worker => (placement as Placement).legs[0]!.worker;

function chooserOf(t: TestContext, fleet: Fleet, factory: PolicyFactory): Chooser {
  const policy = factory(policyContext(fleet));
  t.after(() => policy.close?.());
  return new Chooser(fleet, new PolicyTable({ name: 'tested', policy }));
}

/** Exchanges of every kind, also with keys and prompts that are empty. */
const knowns: readonly Known[] = [
  {},
  { session: 's' },
  { session: '' },
  { tenant: 't' },
  { session: 'other', group: 'g', prompt: promptOf('x'.repeat(1_000)) },
  { prompt: promptOf('short') },
  { prompt: promptOf('') },
  { session: 's', group: 'g', model: 'm', prompt: promptOf('y'.repeat(10_000)), isLastTurn: true },
];

for (const [name, factory] of Object.entries(policies)) {
  test(`${name}: a worker that failed is left out, until nobody is left`, (t) => {
    for (const known of knowns) {
      const { fleet } = fleetOfSize(3);
      const chooser = chooserOf(t, fleet, factory);
      const x = exchangeOf(known);
      for (let left = 3; left > 0; left--) {
        const worker = workerOf(chooser.place(x));
        assert.ok(!x.tried.includes(worker));
        chooser.released(x);
        x.tried = [...x.tried, worker];
      }
      assert.equal(chooser.place(x), null);
    }
  });

  test(`${name}: only eligible workers are chosen, and one is enough`, (t) => {
    const { fleet, workers } = fleetOfSize(4);
    const chooser = chooserOf(t, fleet, factory);
    for (const worker of workers.slice(1)) fleet.setReason(worker, 'unhealthy', true);
    for (let round = 0; round < 20; round++) {
      const x = exchangeOf(knowns[round % knowns.length]);
      assert.equal(workerOf(chooser.place(x)), workers[0]);
      chooser.released(x);
    }
    fleet.setReason(workers[0]!, 'breaker', true);
    assert.equal(chooser.place(exchangeOf()), null);
  });

  test(`${name}: workers come and go, exchanges end whenever they like`, () => {
    const step = fc.oneof(
      { weight: 5, arbitrary: fc.record({ kind: fc.constant('begin' as const), which: fc.nat(knowns.length - 1) }) },
      { weight: 4, arbitrary: fc.record({ kind: fc.constant('end' as const), which: fc.nat(50) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('add' as const), which: fc.nat(6) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('remove' as const), which: fc.nat(6) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('sick' as const), which: fc.nat(6) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('well' as const), which: fc.nat(6) }) },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const { fleet } = fleetOf('http://w0:1', 'http://w1:1');
        const context = policyContext(fleet);
        const policy = factory(context);
        const table = new PolicyTable({ name, policy });
        const chooser = new Chooser(fleet, table);
        const inFlight: Exchange[] = [];
        for (const { kind, which } of steps) {
          context.clock.nowMs += 1_000;
          const named = fleet.get(`http://w${which}:1`);
          if (kind === 'begin') {
            const x = exchangeOf(knowns[which]);
            const eligible = [...fleet.eligible];
            const choice = chooser.place(x);
            if (choice === null) assert.equal(eligible.length, 0);
            else if ('legs' in choice) {
              assert.ok(eligible.includes(workerOf(choice)));
              inFlight.push(x);
            }
          } else if (kind === 'end') {
            const [x] = inFlight.splice(which % Math.max(1, inFlight.length), 1);
            if (x === undefined) continue;
            x.outcome = 'complete';
            chooser.released(x);
          } else if (kind === 'add') fleet.add(`http://w${which}:1`);
          else if (kind === 'remove' && named !== undefined) fleet.remove(named);
          else if (named !== undefined) fleet.setReason(named, 'unhealthy', kind === 'sick');
          policy.explain?.(exchangeOf(knowns[which % knowns.length]), fleet.eligible);
          JSON.stringify(policy.describe?.());
        }
        for (const x of inFlight) chooser.released(x);
        for (const worker of fleet.workers) assert.equal(fleet.load(worker), 0);
        policy.close?.();
      }),
      { numRuns: 60, seed: 1 },
    );
  });

  test(`${name}: what it says of every candidate is numbers`, (t) => {
    const { fleet, workers } = fleetOfSize(3);
    const policy = factory(policyContext(fleet));
    t.after(() => policy.close?.());
    if (policy.explain === undefined) return;
    for (const known of knowns) {
      const candidates = policy.explain(exchangeOf(known), workers);
      assert.deepEqual(new Set(candidates.map(({ worker }) => worker)), new Set(workers.map(({ url }) => url)));
      for (const { terms } of candidates) {
        for (const term of Object.values(terms)) assert.ok(Number.isFinite(term), JSON.stringify(terms));
      }
    }
  });
}
