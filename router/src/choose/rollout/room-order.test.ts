import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { exchangeOf, fleetOfSize, policyContext } from '../../../test/harness/policy.ts';
import { promptOf } from '../../../test/harness/prompt.ts';
import type { Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { FEW } from './cheapest.ts';
import { roomTokens } from './residency.ts';
import { RolloutTracker } from './tracker.ts';

const step = fc.record({
  session: fc.nat(20),
  worker: fc.nat(39),
  tokens: fc.integer({ min: 20, max: 30_000 }),
  do: fc.constantFrom('turn', 'turn', 'turn', 'turn', 'end', 'end', 'close', 'fail', 'recover'),
});

test('workers are shown by the room that they have, and no worker with enough of it is left out', () => {
  fc.assert(
    fc.property(
      fc.constantFrom(3, 40),
      fc.array(step, { minLength: 10, maxLength: 60 }),
      fc.integer({ min: 0, max: 40_000 }),
      (size, steps, wanted) => {
        const { fleet, workers } = fleetOfSize(size);
        for (const worker of workers) worker.kvTokens = 50_000;
        const context = policyContext(fleet);
        const tracker = new RolloutTracker(context);
        let known = 0;
        const running: [Exchange, Worker][] = [];
        for (const { session, worker: at, tokens, do: what } of steps) {
          context.clock.nowMs += 100;
          const worker = workers[at % size]!;
          if (what === 'fail' || what === 'recover') fleet.setReason(worker, 'unhealthy', what === 'fail');
          else if (what === 'close') tracker.endSession(`s${session}`);
          else if (what === 'end') {
            const [x] = running.shift() ?? [];
            if (x !== undefined) tracker.end(Object.assign(x, { outcome: 'complete', status: 200 }));
          } else if (fleet.isEligible(worker)) {
            const x = exchangeOf({ session: `s${session}`, prompt: promptOf(`${session} `.repeat(tokens / 3)) });
            tracker.begin(x, worker);
            running.push([x, worker]);
          }
          const roomOf = (each: Worker): number => roomTokens(tracker.workerState(each), tracker.workload.turnTokens);
          // What the policy has learned of turns reaches one worker per visit.
          const { turnTokens } = tracker.workload;
          for (let i = 0; turnTokens !== known && i < 64; i++)
            tracker.visitRoomy(Infinity, fleet.eligible, () => false);
          known = turnTokens;
          const seen: Worker[] = [];
          tracker.visitRoomy(wanted, fleet.eligible, (state) => seen.push(state.worker) > 0);
          assert.deepEqual(new Set(seen), new Set(fleet.eligible.filter((each) => roomOf(each) >= wanted)));
          // Few workers have no order.
          if (fleet.eligible.length <= FEW) {
            known = 0;
            continue;
          }
          const rooms = seen.map(roomOf);
          assert.deepEqual(
            rooms,
            rooms.toSorted((a, b) => b - a),
          );
        }
        tracker.close();
      },
    ),
    { numRuns: 40 },
  );
});

test('of a list of workers those with room are visited, however many others of the fleet have more', () => {
  const { fleet, workers } = fleetOfSize(120);
  const tracker = new RolloutTracker(policyContext(fleet));
  const listed = workers.slice(100);
  for (const worker of listed) worker.kvTokens = 1_000;
  const seen = new Set<Worker>();
  tracker.visitRoomy(10, listed, ({ worker }) => seen.add(worker).size > 0);
  assert.deepEqual(seen, new Set(listed));
  tracker.close();
});
