import { defaultEngine } from '../../bench/policies/engine-options.ts';
import type { RunMetrics } from '../../bench/policies/run-metrics.ts';
import { shippedPolicy } from '../../bench/policies/shipped.ts';
import { Simulation } from '../../bench/policies/simulation.ts';
import { type Segment, type Trace, TraceBuilder, type TurnPlan } from '../../bench/policies/workload.ts';
import type { BatchShape } from '../../router/src/batch/agent-batch.ts';
import { Columns } from '../../router/src/cli/columns.ts';
import { seededRandom } from '../../router/src/kit/rng.ts';

/**
 * The router's own policies in simulated time (bench/policies): the same policy code and the same batches, on engines whose time is
 * computed. So the load of this machine has no part in the result, and every run gives the same one.
 */

export const policies = ['round_robin', 'consistent_hash', 'cache_aware', 'rollout'] as const;
type Policy = (typeof policies)[number];

export const ENGINES = 4;
/** All engines together hold about a third of the sessions' contexts. */
export const KV_TOKENS = 40_000;
/** Mean length of a response in tokens. */
export const ANSWER_TOKENS = 40;
export const shape: BatchShape = {
  sessions: 96,
  groupSize: 8,
  turns: 11,
  promptWords: 400,
  turnWords: 400,
  maxTokens: 60,
};
const SEEDS = [1, 2, 3, 4, 5];
const BAR = 24;
/** What the demo asserts of each batch: `rollout` takes at most this share of the time of the best other policy. */
export const MOST_SHARE = 0.8;

/** The runs of each policy, a batch for each seed. */
export type Comparison = Readonly<Record<Policy, readonly RunMetrics[]>>;

export const comparePolicies = (): Comparison =>
  Object.fromEntries(policies.map((name) => [name, SEEDS.map((seed) => run(name, seed))])) as unknown as Comparison;

function run(name: Policy, seed: number): RunMetrics {
  const policy = shippedPolicy(name, { hasEndSignals: true, hasHistory: false });
  const engine = { ...defaultEngine, kvTokens: KV_TOKENS };
  const earlierBatch = () => batch(99);
  return new Simulation({ trace: batch(seed), policy, engine, engineCount: ENGINES, seed, earlierBatch }).run();
}

/** A token for a word. */
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

interface Spread {
  readonly least: number;
  readonly median: number;
  readonly most: number;
}

function spreadOf(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  return { least: sorted[0]!, median: sorted[Math.floor(sorted.length / 2)]!, most: sorted.at(-1)! };
}

/** The time of `rollout` as a share of that of the best other policy, batch by batch. */
export const rolloutShare = (all: Comparison): Spread =>
  spreadOf(
    all.rollout.map(({ makespan }, i) => {
      const others = policies.filter((name) => name !== 'rollout').map((name) => all[name][i]!.makespan);
      return makespan / Math.min(...others);
    }),
  );

/** A row for each policy; the bar is as long as its median batch. */
export function comparisonTable(all: Comparison): string {
  const longest = Math.max(...policies.map((name) => spreadOf(all[name].map(({ makespan }) => makespan)).median));
  const of = (name: Policy, value: (run: RunMetrics) => number): number => spreadOf(all[name].map(value)).median;
  const rows = policies.map((name) => {
    const { least, median, most } = spreadOf(all[name].map(({ makespan }) => makespan));
    return [
      name,
      `${median.toFixed(1)} s (${least.toFixed(1)} to ${most.toFixed(1)})`,
      '█'.repeat(Math.round((BAR * median) / longest)).padEnd(BAR),
      `${(100 * of(name, ({ hitShare }) => hitShare)).toFixed(0)} %`,
      `${(of(name, ({ prefilledTokens }) => prefilledTokens) / 1e6).toFixed(1)} million`,
      `${(1000 * of(name, ({ ttftP50 }) => ttftP50)).toFixed(0)} ms`,
    ];
  });
  const head = ['policy', 'batch', '', 'cache hits', 'prompt tokens computed', 'first token p50'];
  const columns = new Columns(head, ...rows);
  return [head, ...rows].map((cells) => columns.line(cells)).join('\n');
}
