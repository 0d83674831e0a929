import { deepEqual, equal } from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { stringify } from 'yaml';
import { alerts } from '../../../deploy/prometheus/alerts.ts';
import { alertsFile } from '../../../deploy/prometheus/generate.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { start } from './programs.ts';

/** A gauge, or a counter, minute by minute: first as it is when all is well, then when something is wrong. */
const series: Readonly<Record<string, readonly [well: string, wrong: string]>> = {
  'turnout_workers{eligible="true",role="prefill"}': ['4x60', '4x60'],
  'turnout_workers{eligible="true",role="decode"}': ['4x60', '0x60'],
  'turnout_worker_not_serving{worker="http://e",reason="hung"}': ['_x60', '1x60'],
  'turnout_worker_not_serving{worker="http://e",reason="version"}': ['1x10 _x50', '1x60'],
  'turnout_worker_stalled{worker="http://e"}': ['0x60', '1x60'],
  'turnout_held_oldest_seconds{reason="kv_cache_full"}': ['200x60', '0+60x60'],
  'turnout_shed_total{reason="queue_full"}': ['7x60', '0+10x60'],
  turnout_swap_open_seconds: ['0+60x20 0x40', '0+60x60'],
  'turnout_swap_engines{state="quarantined"}': ['0x60', '2x60'],
  turnout_trajectory_dropped_total: ['3x60', '0+1x60'],
};

/** @returns what promtool printed, and its exit status */
async function promtool(...args: string[]): Promise<[output: string, status: number | null]> {
  const child = await start('promtool', args);
  let output = '';
  for (const stream of [child.stdout!, child.stderr!])
    stream.setEncoding('utf8').on('data', (text) => (output += text));
  const status = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return [output, status];
}

/** Runs the rules over an hour of the series. */
async function firing(t: TestContext, which: 0 | 1, names: readonly string[]): Promise<void> {
  const file = join(temporaryFolder(t), 'test.yaml');
  const input = Object.entries(series).map(([name, values]) => ({ series: name, values: values[which] }));
  const samples = names.map((name) => ({ labels: `{alertname="${name}"}`, value: 1 }));
  const expr = 'count by (alertname) (ALERTS{alertstate="firing"})';
  const tests = [
    { interval: '1m', input_series: input, promql_expr_test: [{ expr, eval_time: '55m', exp_samples: samples }] },
  ];
  writeFileSync(file, stringify({ rule_files: [alertsFile], tests }));
  const [output, status] = await promtool('test', 'rules', file);
  equal(status, 0, output);
}

test('promtool accepts the alerts', async () => {
  const [output, status] = await promtool('check', 'rules', alertsFile);
  deepEqual([status, /(\d+) rules found/.exec(output)?.[1]], [0, String(alerts.length)], output);
});

test('each alert fires when something is wrong, and none when all is well', async (t) => {
  await firing(
    t,
    1,
    alerts.map(({ alert }) => alert),
  );
  await firing(t, 0, []);
});
