import assert from 'node:assert/strict';
import { test } from 'node:test';
import { defaultEngine } from '../../bench/policies/engine-options.ts';
import { shippedPolicy } from '../../bench/policies/shipped.ts';
import { Simulation } from '../../bench/policies/simulation.ts';
import { type Segment, type Trace, TraceBuilder, type TurnPlan } from '../../bench/policies/workload.ts';
import { seededRandom } from '../../router/src/kit/rng.ts';
import { ANSWER_TOKENS, ENGINES, KV_TOKENS, policies, shape } from './shape.ts';

/** The batch of the demo as a trace, a token for a word. */
function batch(seed: number): Trace {
  const { sessions, groupSize, turns, promptWords, turnWords, maxTokens } = shape;
  const build = new TraceBuilder();
  const random = seededRandom(seed);
  const prompts: Segment[] = [];
  const all = Array.from({ length: sessions }, (_, i) => {
    const group = Math.floor(i / groupSize);
    prompts[group] ??= build.segment(`p${group}`, promptWords);
    const plans = Array.from({ length: Math.max(1, Math.round(turns * (0.5 + random()))) }, (__, turn): TurnPlan => [
      turn === 0 ? 0 : turnWords,
      Math.min(maxTokens, 1 + Math.floor(-Math.log(1 - random()) * ANSWER_TOKENS)),
      0,
    ]);
    return build.session({ id: `s${i}`, group: `g${group}`, prefix: [prompts[group]], startSeconds: 0 }, plans);
  });
  return { name: 'demo', sessions: all, events: [] };
}

test('in simulated time the batch of the demo takes rollout at most 0.8 of what the best other policy takes', () => {
  const median = (name: (typeof policies)[number]): number => {
    const times = [1, 2, 3, 4, 5].map((seed) => {
      const policy = shippedPolicy(name, { hasEndSignals: true, hasHistory: false });
      const engine = { ...defaultEngine, kvTokens: KV_TOKENS };
      const options = { trace: batch(seed), policy, engine, engineCount: ENGINES, seed, earlierBatch: () => batch(99) };
      return new Simulation(options).run().makespan;
    });
    return times.toSorted((a, b) => a - b)[2]!;
  };
  const others = policies.filter((name) => name !== 'rollout').map(median);
  assert.ok(median('rollout') <= 0.8 * Math.min(...others), `${median('rollout')} s against ${others.join(', ')} s`);
});
