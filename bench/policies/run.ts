// npm run bench -- policies: routing policies in a simulated fleet.
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
import { streams } from './streams.ts';
import { traces } from './traces.ts';

/** Every trace, the agents also on engines with more memory. */
const everyTrace = [...Object.keys(traces), 'agent@600k', 'agent@800k'].join(',');
const everyPolicy = [...Object.keys(peers), ...Object.keys(shipped)].join(',');
/** A stream has no batch before it. */
const streamPolicies = everyPolicy.replace(',rollout_first', '');
/** Seeds that were not used for tuning. */
const batchSeeds = '11,12,13,14,15,16,17,18,19,20';
const streamSeeds = '41,42,43,44,45,46,47,48,49,50';

const usage = `npm run bench -- policies [options]
  --traces A,B     ${everyTrace}; agent@600k runs one with other memory (all of them)
  --policies X,Y   ${Object.keys(policies).join(', ')} (all of them)
  --seeds 1,2,3    one batch or stream each (${batchSeeds}; streams ${streamSeeds})
  --kv TOKENS      KV memory of an engine (450k)
  --engines N      engines in the fleet (8)
  --quick          streams half as long
  --jobs N         threads (1)
  --json FILE      every single run, as JSON
  --out FILE       the report, as Markdown

Only a whole run (at most --jobs and --json) writes bench/policies/report.md; any other prints its tables.`;

const { values } = parseArgs({
  options: {
    traces: { type: 'string' },
    policies: { type: 'string' },
    seeds: { type: 'string' },
    kv: { type: 'string' },
    engines: { type: 'string' },
    quick: { type: 'boolean', default: false },
    jobs: { type: 'string', default: '1' },
    json: { type: 'string' },
    out: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

const isWhole =
  !values.quick &&
  [values.traces, values.policies, values.seeds, values.kv, values.engines].every((x) => x === undefined);

function positive(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new Error(`--${name} wants whole numbers from 1 on, not "${text}"`);
  return value;
}

/** In the order of traces and seeds, so that a thread makes each trace once. */
function cells(): Cell[] {
  const engines = positive('engines', values.engines ?? '8');
  const isQuick = values.quick;
  const kvTokens = parseTokens(values.kv ?? '450k');
  const unknown = values.policies?.split(',').filter((name) => !(name in policies)) ?? [];
  if (unknown.length > 0)
    throw new Error(`no policy ${unknown.join(', ')}; there are ${Object.keys(policies).join(', ')}`);
  return (values.traces ?? everyTrace)
    .split(',')
    .map((text) => parseWorkload(text, kvTokens))
    .flatMap((workload) => {
      const isStream = workload.trace in streams;
      const seeds = (values.seeds ?? (isStream ? streamSeeds : batchSeeds)).split(',');
      const names = (values.policies ?? (isStream ? streamPolicies : everyPolicy)).split(',');
      return seeds
        .map((seed) => positive('seeds', seed))
        .flatMap((seed) => names.map((policy) => ({ ...workload, engines, seed, policy, isQuick })));
    });
}

function seedsText(): string {
  const seeds = values.seeds ?? `${batchSeeds} (batches) and ${streamSeeds} (streams)`;
  return seeds.replaceAll(',', ', ');
}

function head(): string {
  return `# Routing policies in a simulated fleet

${new Date().toISOString().slice(0, 10)} · ${machine()}

Mean ± deviation over the seeds ${seedsText()}. Every time is one of the simulation's
virtual clock: the machine has no part in it. ${Object.keys(shipped).join(', ')} are the shipped
policy itself: after an earlier batch (a stream has none), in a first batch, without signals of sessions' ends, without letting
sessions wait, and with waits of up to 1,800 s instead of 60 s. The others are peers' policies, modelled from their documentation and sources; thunder_agent with its defaults, with
its option for decay, as its documentation describes it, and with waits of up to 60 s, which it has no option for. How far running routers and engines agree with the simulation:
[bench/rollout/report.md](../rollout/report.md). To repeat:
\`npm run bench -- policies --jobs 2\`.`;
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
  if (values.out !== undefined) write(values.out, results);
  else if (isWhole) write(join(import.meta.dirname, 'report.md'), results);
  if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(results, null, 1)}\n`);
}
