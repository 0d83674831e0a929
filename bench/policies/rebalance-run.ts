// npm run bench -- rebalance [traces] [seeds] [least gains]: what moving unfinished work to other engines changes. Decision 0011 has the figures.
import { defaultEngine } from './engine-options.ts';
import { policies } from './simulated-policies.ts';
import type { RebalanceOptions } from './rebalance.ts';
import type { RunMetrics } from './run-metrics.ts';
import { Simulation } from './simulation.ts';
import { traces } from './traces.ts';

const [only = 'grpo,agent', count = '5', gains = '0.1,0.02'] = process.argv.slice(2);
const seeds = Array.from({ length: Number(count) }, (_, i) => 11 + i);
const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

function run(trace: string, policy: string, seed: number, rebalance: RebalanceOptions | null): RunMetrics {
  return new Simulation({
    trace: traces[trace]!(seed),
    policy: policies[policy]!,
    engine: defaultEngine,
    engineCount: 8,
    seed,
    earlierBatch: () => traces[trace]!(seed + 1000),
    ...(rebalance === null ? {} : { rebalance }),
  }).run();
}

console.log(`| trace | policy | least gain | makespan s | lengths known | moves | lengths learned | moves |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |`);
for (const trace of only.split(',')) {
  for (const policy of ['rollout', 'least_inflight', 'chash_session']) {
    const base = mean(seeds.map((seed) => run(trace, policy, seed, null).makespan));
    for (const leastGain of gains.split(',').map(Number)) {
      const cells = (['known', 'learned'] as const).flatMap((foresight) => {
        const runs = seeds.map((seed) => run(trace, policy, seed, { foresight, leastGain }));
        const makespan = mean(runs.map((each) => each.makespan));
        const change = (100 * (makespan - base)) / base;
        const moves = mean(runs.map((each) => each.moves));
        return [`${makespan.toFixed(1)} (${change > 0 ? '+' : ''}${change.toFixed(1)} %)`, moves.toFixed(0)];
      });
      console.log(`| ${trace} | ${policy} | ${100 * leastGain} % | ${base.toFixed(1)} | ${cells.join(' | ')} |`);
    }
  }
}
