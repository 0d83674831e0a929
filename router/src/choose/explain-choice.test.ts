import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOfSize, policyContext } from '../../test/harness/policy.ts';
import { promptOf } from '../../test/harness/prompt.ts';
import type { Exchange } from '../exchange.ts';
import type { Placement, Worker } from '../fleet/worker.ts';
import { policies } from './built-in-policies.ts';
import { explainChoice } from './explain-choice.ts';
import { leastInflight } from './policies/least-inflight.ts';
import type { Policy } from './policy.ts';

const { fleet, workers } = fleetOfSize(12);
/** The worker at each index has so many requests in flight. */
for (const [i, load] of [5, 3, 9, 2, 7, 1, 8, 4, 6, 11, 10, 12].entries()) {
  for (let n = 0; n < load; n++) fleet.begin(workers[i]!);
}

const chosen = (policy: Policy, x: Exchange): Worker => {
  x.placement = policy.choose(x, workers) as Placement;
  return x.placement.legs.at(-1)!.worker;
};
const urlsOf = (policy: Policy, x: Exchange): string[] =>
  explainChoice(x, policy, workers)!.map(({ worker }) => worker);

test('the best four of many workers, best first', () => {
  const policy = leastInflight(policyContext(fleet));
  const x = exchangeOf();
  equal(chosen(policy, x), workers[5]);
  deepEqual(explainChoice(x, policy, workers)!, [
    { worker: 'http://w5:1', terms: { load: 1 } },
    { worker: 'http://w3:1', terms: { load: 2 } },
    { worker: 'http://w1:1', terms: { load: 3 } },
    { worker: 'http://w7:1', terms: { load: 4 } },
  ]);
});

test('the chosen worker and the one that the session left are among them, however they rank', () => {
  const policy = leastInflight(policyContext(fleet));
  const x = exchangeOf({ session: 's' });
  x.placement = workers[11]!.alone;
  deepEqual(urlsOf(policy, x), ['http://w11:1', 'http://w5:1', 'http://w3:1', 'http://w1:1']);
  const move = { session: 's', to: 'http://w11:1', reason: 'policy', savedSecs: 0, atMs: 0 } as const;
  x.move = { ...move, from: 'http://w9:1' };
  deepEqual(urlsOf(policy, x), ['http://w9:1', 'http://w11:1', 'http://w5:1', 'http://w3:1']);
});

test('all of a small fleet, none of a policy that can not tell', () => {
  const policy = leastInflight(policyContext(fleet));
  const few = workers.slice(0, 3);
  equal(explainChoice(exchangeOf(), policy, few)!.length, 3);
  equal(explainChoice(exchangeOf(), { needs: 'nothing', choose: () => few[0]!.alone }, few), null);
});

for (const [name, factory] of Object.entries(policies)) {
  test(`${name}: the worker that it chose is among the candidates, with its terms`, (t) => {
    for (const size of [12, 40]) {
      const large = fleetOfSize(size);
      const policy = factory(policyContext(large.fleet));
      t.after(() => policy.close?.());
      for (const known of [{}, { session: 's1' }, { session: 's2' }, { prompt: promptOf('a prompt '.repeat(99)) }]) {
        const x = exchangeOf(known);
        const placement = policy.choose(x, large.workers) as Placement;
        x.placement = placement;
        const { worker } = placement.legs[0]!;
        const candidates = explainChoice(x, policy, large.workers);
        if (candidates === null) continue;
        ok(candidates.length === 4 || (size > 16 && candidates.length > 0), `${candidates.length} of ${size}`);
        ok(Object.keys(candidates.find(({ worker: url }) => url === worker.url)!.terms).length > 0);
        policy.begun?.(x, worker);
      }
    }
  });
}
