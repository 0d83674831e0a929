import { parseArgs } from 'node:util';
import { type PluginName, killFaults, runHardCases, usualFaults } from './hard-cases.ts';
import type { Faults } from './plan.ts';

/** The property of `exact/*.test.ts` over as many trajectories as wanted: `node router/test/exact/run.ts --plugin radix-tree --trajectories 100000`. */
const named: Readonly<Record<string, Faults>> = { none: {}, usual: usualFaults, kills: killFaults };
const { values } = parseArgs({
  options: {
    plugin: { type: 'string', default: 'radix-tree' },
    trajectories: { type: 'string', default: '100000' },
    /** `none`, `usual`, `kills`, or JSON: see `Faults`. */
    faults: { type: 'string', default: 'usual' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000_000) },
  },
});
const plugin = values.plugin as PluginName;
const began = performance.now();
const secs = (): string => `${((performance.now() - began) / 1000).toFixed(0)} s`;
console.log(`${plugin}: ${values.trajectories} trajectories, seed ${values.seed}`);
const done = await runHardCases(
  {
    plugin,
    trajectories: Number(values.trajectories),
    seed: Number(values.seed),
    faults: named[values.faults] ?? (JSON.parse(values.faults) as Faults),
  },
  ({ trajectories }) => console.log(`${trajectories} after ${secs()}`),
);
console.log(`${plugin}: seed ${values.seed}: ${JSON.stringify(done)}, all as they were sampled, in ${secs()}`);
