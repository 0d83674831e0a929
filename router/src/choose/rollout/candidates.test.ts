import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { exchangeOf, fleetOfSize, policyContext } from '../../../test/harness/policy.ts';
import { promptOf } from '../../../test/harness/prompt.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import { rollout } from '../policies/rollout.ts';
import { LEAST_LOADED } from './candidates.ts';
import { FEW } from './cheapest.ts';
import { costAt, noCost } from './request.ts';
import { RolloutTracker } from './tracker.ts';

const WORKERS = 40;
const any = (): boolean => true;

const step = fc.record({
  session: fc.nat(12),
  group: fc.nat(3),
  worker: fc.nat(WORKERS - 1),
  tokens: fc.integer({ min: 20, max: 3_000 }),
  do: fc.constantFrom('turn', 'turn', 'turn', 'end', 'fail', 'recover', 'flush'),
  passMs: fc.nat(500),
});

test('the home, the workers with most of the prompt and the least loaded ones are always compared', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 20, maxLength: 60 }), (steps) => {
      const { fleet, workers } = fleetOfSize(WORKERS);
      const context = policyContext(fleet);
      const tracker = new RolloutTracker(context);
      const running: [ReturnType<typeof exchangeOf>, Worker][] = [];
      for (const { session, group, worker: at, tokens, do: what, passMs } of steps) {
        context.clock.nowMs += passMs;
        const worker = workers[at]!;
        if (what === 'fail' || what === 'recover') fleet.setReason(worker, 'unhealthy', what === 'fail');
        else if (what === 'flush') tracker.flush(worker);
        else if (what === 'end') {
          const [x] = running.shift() ?? [];
          if (x !== undefined) tracker.end(Object.assign(x, { outcome: 'complete', status: 200 }));
        } else {
          const text = `${`group ${group} `.repeat(20)}${`session ${session} `.repeat(tokens / 5)}`;
          const x = exchangeOf({ session: `s${session}`, group: `g${group}`, prompt: promptOf(text) });
          const request = tracker.request(x);
          const few = tracker.candidates.of(request, fleet.eligible, context.clock.nowMs, any);
          assert.equal(new Set(few).size, few.length);
          for (const each of few) assert.ok(fleet.isEligible(each));
          const home = request.session?.home?.worker;
          if (home !== undefined && fleet.isEligible(home)) assert.ok(few.includes(home));
          const cached = (each: Worker): number => {
            const state = tracker.workerState(each);
            return state === request.session?.home ? 0 : tracker.cachedTokens(request, state);
          };
          const most = Math.max(...fleet.eligible.map(cached));
          const best = fleet.eligible.filter((each) => cached(each) === most);
          if (most > 0 && best.length <= 8) for (const each of best) assert.ok(few.includes(each), each.url);
          const usual = { ...request, group: null, isFirstTurn: false, promptTokens: 1_000, answerTokens: 0 };
          usual.answerTokens = tracker.workload.answerTokens;
          const load = (each: Worker): number =>
            costAt(tracker.workerState(each), usual, 0, context.clock.nowMs, noCost());
          const loads = fleet.eligible.map(load).toSorted((a, b) => a - b);
          const few8 = few.map(load).toSorted((a, b) => a - b);
          for (let i = 0; i < LEAST_LOADED; i++) assert.ok(Math.abs(few8[i]! - loads[i]!) < 0.02 * (1 + loads[i]!));
          if (!fleet.isEligible(worker)) continue;
          tracker.begin(x, worker);
          running.push([x, worker]);
        }
      }
      tracker.close();
    }),
    { numRuns: 100 },
  );
});

test('only workers of the list are compared', () => {
  const { fleet, workers } = fleetOfSize(WORKERS);
  const tracker = new RolloutTracker(policyContext(fleet));
  const request = tracker.request(exchangeOf({ session: 's', prompt: promptOf('a prompt '.repeat(50)) }));
  const odd = workers.filter((_, i) => i % 2 === 1);
  const compared = tracker.candidates.of(request, odd, 0, any);
  assert.equal(compared.length, LEAST_LOADED);
  for (const worker of compared) assert.ok(odd.includes(worker));
  // Fewer than are compared of those that the order shows first: all of the list.
  const last = workers.slice(-17);
  assert.ok(tracker.candidates.of(request, last, 0, any).every((worker) => last.includes(worker)));
});

test('in a large fleet few workers are compared, in a small one all', () => {
  for (const [size, most] of [
    [FEW, FEW],
    [FEW + 1, FEW + 1],
    [200, 17],
  ] as const) {
    const { fleet, workers } = fleetOfSize(size);
    const policy = rollout(policyContext(fleet));
    for (let i = 0; i < 50; i++) {
      const x = exchangeOf({ session: `s${i % 20}`, prompt: promptOf('a prompt '.repeat(50)) });
      const choice = policy.choose(x, workers) as Placement;
      const compared = policy.compared!(x, workers);
      assert.ok(compared.includes(choice.legs[0]!.worker));
      if (size === FEW) assert.equal(compared.length, size);
      else assert.ok(compared.length <= most, `${compared.length} of ${size}`);
      policy.begun!(x, choice.legs[0]!.worker);
    }
    policy.close!();
  }
});
