import assert from 'node:assert/strict';
import { test } from 'node:test';
import { defaultEngine } from './engine-options.ts';
import type { SimPolicyFactory } from './policy.ts';
import type { RebalanceOptions } from './rebalance.ts';
import { Simulation } from './simulation.ts';
import { TraceBuilder } from './workload.ts';

/** Everything goes to the first engine. */
const first: SimPolicyFactory = () => ({
  route: () => 0,
  sent: () => {},
  finished: () => {},
  closed: () => {},
  down: () => {},
  upped: () => {},
  paused: () => {},
  swapped: () => {},
  pump: () => {},
});

function run(outputs: readonly number[], rebalance?: RebalanceOptions) {
  const build = new TraceBuilder();
  const prefix = [build.segment('p', 1000)];
  const sessions = outputs.map((output, i) =>
    build.session({ id: `s${i}`, group: 'g', prefix, startSeconds: 0 }, [[0, output, 0]]),
  );
  return new Simulation({
    trace: { name: 'test', sessions, events: [] },
    policy: first,
    // Reading the KV cache takes most of a step: two engines are faster than one.
    engine: { ...defaultEngine, kvTokenSeconds: 1e-6 },
    engineCount: 2,
    seed: 1,
    earlierBatch: () => assert.fail(),
    ...(rebalance === undefined ? {} : { rebalance }),
  }).run();
}

test('a running response moves to an idle engine where both are faster then, and keeps its tokens', () => {
  const outputs = [10, 4000, 4000];
  const alone = run(outputs);
  const moved = run(outputs, { foresight: 'known', leastGain: 0.1 });
  assert.deepEqual([alone.moves, moved.moves], [0, 1]);
  assert.ok(moved.makespan < 0.9 * alone.makespan, `${moved.makespan} s, ${alone.makespan} s without`);
  assert.equal(moved.requests, 3);
  assert.ok(moved.recomputedTokens > 0, 'its tokens were computed again');
});

test('one response alone stays', () => {
  assert.equal(run([10, 4000], { foresight: 'known', leastGain: 0.1 }).moves, 0);
});
