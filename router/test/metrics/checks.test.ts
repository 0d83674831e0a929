import { deepEqual, equal, ok } from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { metrics } from '../../src/observe/metrics.ts';
import { peerMetrics } from '../../src/observe/metrics/peers.ts';
import { pythonOf, whyMissing } from '../clients/environments.ts';
import { startBusyFleet } from '../harness/busy-fleet.ts';
import { complaints } from './programs.ts';

interface Family {
  readonly type: string;
  readonly help: string;
  readonly labels: readonly string[];
}

/** The page as `prometheus-client` reads it. */
async function parsed(page: string): Promise<Record<string, Family>> {
  const problem = await whyMissing('prometheus', (line) => process.stderr.write(`${line}\n`));
  if (problem !== false) throw new Error(problem);
  const program = join(import.meta.dirname, 'families.py');
  return JSON.parse(execFileSync(pythonOf('prometheus'), [program], { input: page, encoding: 'utf8' })) as Record<
    string,
    Family
  >;
}

test('promtool complains of itself when a page is wrong', async () => {
  deepEqual(await complaints('# HELP a_count A.\n# TYPE a_count counter\na_count 1\n'), [
    'a_count counter metrics should have "_total" suffix',
    'a_count non-histogram and non-summary metrics should not have "_count" suffix',
  ]);
});

for (const peer of ['off', 'sglang', 'vllm'] as const) {
  test(`promtool and prometheus-client accept the page, with --metrics-compat ${peer} and all plugins`, async (t) => {
    const { work, page } = await startBusyFleet(t, { metricsCompat: peer });
    await work();
    const text = await page();
    deepEqual(await complaints(text), []);
    const families = await parsed(text);
    for (const { name, type, help, labels = [] } of [...metrics, ...(peer === 'off' ? [] : peerMetrics[peer])]) {
      // The parser names a counter without its suffix.
      const family = families[type === 'counter' ? name.replace(/_total$/, '') : name];
      ok(family !== undefined, name);
      deepEqual([family.type, family.help], [type, help], name);
      if (family.labels.length > 0) deepEqual(family.labels, labels.toSorted(), name);
    }
  });
}

test("the page of the engines' metrics is valid: each metric once, with the engine as a label", async (t) => {
  const { work, page, router } = await startBusyFleet(t);
  await work();
  const text = await page('/engine_metrics');
  // The names are the engines' own, and Prometheus keeps colons for recording rules.
  const others = (await complaints(text)).filter((line) => !line.endsWith("metric names should not contain ':'"));
  deepEqual(others, []);
  const families = await parsed(text);
  for (const [name, { labels }] of Object.entries(families)) ok(labels.includes('worker_addr'), name);
  ok(Object.keys(families).some((name) => name.startsWith('vllm:')));
  ok(Object.keys(families).some((name) => name.startsWith('sglang:')));
  for (const { url } of router.fleet.workers) ok(text.includes(`worker_addr="${url}"`), url);
  equal(text.match(/^# TYPE vllm:num_requests_running /gm)!.length, 1);
});
