// npm run bench:policies: routing policies in a simulated fleet.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { machine } from '../machine.ts';
import { parseTokens, parseWorkload, type Cell, type CellResult } from './grid.ts';
import { peers } from './peers/peers.ts';
import { policies } from './simulated-policies.ts';
import { runCells } from './pool.ts';
import { renderReport } from './report.ts';
import { shipped } from './shipped.ts';
import { traces } from './traces.ts';

/** Every trace, the agents also on engines with more memory; with seeds that were not used for tuning. */
const whole = {
  traces: [...Object.keys(traces), 'agent@600k', 'agent@800k'].join(','),
  policies: [...Object.keys(peers), ...Object.keys(shipped)].join(','),
  seeds: '11,12,13,14,15,16,17,18,19,20',
  kv: '450k',
  engines: '8',
} as const;

const usage = `npm run bench:policies -- [options]
  --traces A,B     ${Object.keys(traces).join(', ')}; agent@600k runs one with other memory (${whole.traces})
  --policies X,Y   ${Object.keys(policies).join(', ')} (the peers' and the shipped)
  --seeds 1,2,3    one batch each (${whole.seeds})
  --kv TOKENS      KV memory of an engine (450k)
  --engines N      engines in the fleet (8)
  --quick          streams half as long
  --jobs N         threads (1)
  --json FILE      every single run, as JSON
  --out FILE       the report, as Markdown

Only a whole run (the defaults) writes bench/policies/report.md; any other prints its tables.`;

const { values } = parseArgs({
  options: {
    traces: { type: 'string', default: whole.traces },
    policies: { type: 'string', default: whole.policies },
    seeds: { type: 'string', default: whole.seeds },
    kv: { type: 'string', default: whole.kv },
    engines: { type: 'string', default: whole.engines },
    quick: { type: 'boolean', default: false },
    jobs: { type: 'string', default: '1' },
    json: { type: 'string' },
    out: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

function positive(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new Error(`--${name} wants whole numbers from 1 on, not "${text}"`);
  return value;
}

/** In the order of traces and seeds, so that a thread makes each trace once. */
function cells(): Cell[] {
  const engines = positive('engines', values.engines);
  const isQuick = values.quick;
  const kvTokens = parseTokens(values.kv);
  const names = values.policies.split(',');
  const unknown = names.filter((name) => !(name in policies));
  if (unknown.length > 0)
    throw new Error(`no policy ${unknown.join(', ')}; there are ${Object.keys(policies).join(', ')}`);
  const seeds = values.seeds.split(',').map((seed) => positive('seeds', seed));
  return values.traces
    .split(',')
    .map((text) => parseWorkload(text, kvTokens))
    .flatMap((workload) =>
      seeds.flatMap((seed) => names.map((policy) => ({ ...workload, engines, seed, policy, isQuick }))),
    );
}

function head(): string {
  return `# Routing policies in a simulated fleet

${new Date().toISOString().slice(0, 10)} · ${machine()}

Mean ± deviation over the seeds ${values.seeds.replaceAll(',', ', ')}. Every time is one of the simulation's virtual clock: the
machine has no part in it. ${Object.keys(shipped).join(', ')} are the shipped policy itself: after an earlier
batch, in a first batch, without signals of sessions' ends, and without letting sessions wait. The others are peers' policies,
modelled from their documentation and sources. How far running routers and engines agree with the simulation:
[bench/rollout/report.md](../rollout/report.md). To repeat: \`npm run bench:policies\`.`;
}

function write(path: string, results: readonly CellResult[]): void {
  writeFileSync(path, `${head()}\n\n${renderReport(results)}`);
}

if (values.help) {
  console.log(usage);
} else {
  const grid = cells();
  const startedAt = performance.now();
  const seconds = (): string => ((performance.now() - startedAt) / 1000).toFixed(0);
  let finished = 0;
  const results = await runCells(grid, positive('jobs', values.jobs), ({ trace, policy, seed, wallSeconds }) => {
    finished += 1;
    const run = `${trace} ${policy} ${seed} in ${wallSeconds.toFixed(2)} s`;
    if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${finished}/${grid.length} ${run}`);
    else if (finished % 20 === 0) process.stderr.write(`${finished}/${grid.length} after ${seconds()} s\n`);
  });
  process.stderr.write(`${process.stderr.isTTY ? '\r\x1b[K' : ''}${finished} runs in ${seconds()} s\n`);
  console.log(renderReport(results));
  const isWhole =
    !values.quick && Object.entries(whole).every(([name, value]) => values[name as keyof typeof whole] === value);
  if (values.out !== undefined) write(values.out, results);
  else if (isWhole) write(join(import.meta.dirname, 'report.md'), results);
  if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(results, null, 1)}\n`);
}
