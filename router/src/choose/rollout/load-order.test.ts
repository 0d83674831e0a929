import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { fleetOfSize } from '../../../test/harness/policy.ts';
import { LoadOrder } from './load-order.ts';
import { costAt, noCost } from './request.ts';
import { Slowness, WorkerState } from './worker-state.ts';
import { Workload } from './workload.ts';

const WORKERS = 20;
const PROMPT_TOKENS = 1_000;

const step = fc.record({
  worker: fc.nat(WORKERS - 1),
  do: fc.constantFrom('begin', 'begin', 'end', 'measure', 'leave'),
  tokens: fc.integer({ min: 1, max: 400_000 }),
  passMs: fc.oneof(fc.constant(0), fc.nat(20_000)),
});

function shown(order: LoadOrder, nowMs: number): WorkerState[] {
  const states: WorkerState[] = [];
  order.visit(nowMs, (state) => states.push(state) > 0);
  return states;
}

test('workers are shown by what a usual request costs there, after any changes', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const fleet = new Slowness();
      const workload = new Workload();
      const order = new LoadOrder(fleet, workload);
      const states = fleetOfSize(WORKERS).workers.map((worker) => new WorkerState(worker, fleet));
      let nowMs = 0;
      const known = new Set<WorkerState>();
      for (const { worker, do: what, tokens, passMs } of steps) {
        nowMs += passMs;
        const state = states[worker]!;
        if (what === 'leave') {
          order.delete(state);
          known.delete(state);
          continue;
        }
        if (what === 'begin') {
          state.sequences++;
          state.kvTokens += tokens;
          state.queueEndMs = Math.max(nowMs, state.queueEndMs) + tokens / 20;
        } else if (what === 'end' && state.sequences > 0) {
          state.sequences--;
          state.kvTokens /= 2;
          state.queueEndMs = Math.max(nowMs, state.queueEndMs - tokens / 20);
        } else if (what === 'measure') for (let i = 0; i < 100; i++) state.sawDecode(tokens / 1e6, 0.1);
        order.set(state, nowMs);
        known.add(state);
        const request = {
          group: null,
          promptTokens: PROMPT_TOKENS,
          answerTokens: workload.answerTokens,
          isFirstTurn: false,
        };
        const cost = (each: WorkerState): number => costAt(each, request, 0, nowMs, noCost());
        // What the fleet has learned reaches one worker per visit.
        if (what === 'measure') for (let i = 0; i < 64; i++) shown(order, nowMs);
        const seen = shown(order, nowMs);
        assert.deepEqual(new Set(seen), known);
        assert.equal(seen.length, known.size);
        const costs = seen.map(cost);
        for (let i = 1; i < costs.length; i++) assert.ok(costs[i]! >= costs[i - 1]! - 1e-6, costs.join(' '));
        const least = Math.min(...costs);
        for (const each of seen) {
          const difference = order.cost(each.worker.slot, nowMs) - order.cost(seen[0]!.worker.slot, nowMs);
          assert.ok(Math.abs(difference - (cost(each) - least)) < 1e-6);
        }
      }
    }),
    { numRuns: 150 },
  );
});
