import { deepEqual, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { metrics } from '../../src/observe/metrics.ts';
import { peerMetrics } from '../../src/observe/metrics/peers.ts';
import type { MetricSpec } from '../../src/observe/metrics/spec.ts';
import { chatMetrics, treeCounters, treeFailures, treeGauges } from '../../src/recorder/tap/metrics.ts';
import { startBusyFleet } from '../harness/busy-fleet.ts';

/** Metrics of what does not happen in the scene. */
const silent = new Set([
  'turnout_discovered_workers',
  'turnout_discovery_connected',
  'turnout_held_oldest_seconds',
  'turnout_plugin_failures_total',
  'turnout_resumes_total',
  'turnout_unresumed_total',
  'turnout_worker_not_serving',
]);

interface Family {
  help: string;
  type: string;
  /** Of each sample, without `le`. */
  readonly labels: Set<string>;
  readonly values: Set<string>;
}

/** By name. Samples come after the HELP and TYPE of their metric. */
function read(page: string): Map<string, Family> {
  const families = new Map<string, Family>();
  let family: Family | null = null;
  const series = new Set<string>();
  for (const line of page.split('\n')) {
    const [, about, name = '', text = ''] = /^# (HELP|TYPE) (\S+) (.*)$/.exec(line) ?? [];
    if (about === 'HELP') {
      family = { help: text, type: '', labels: new Set(), values: new Set() };
      ok(!families.has(name), `${name} is there twice`);
      families.set(name, family);
    } else if (about === 'TYPE') family!.type = text;
    else if (line !== '') {
      const one = line.slice(0, line.lastIndexOf(' '));
      ok(!series.has(one), `${one} is there twice`);
      series.add(one);
      const pairs = [...line.matchAll(/[{,]([a-z_]+)="((?:[^"\\]|\\.)*)"/g)].filter(([, label]) => label !== 'le');
      family!.labels.add(pairs.map(([, label]) => label).join());
      for (const [, label, value] of pairs) family!.values.add(`${label}=${value}`);
    }
  }
  return families;
}

const ofPlugin = (type: MetricSpec['type'], entries: readonly (readonly [string, string])[]) =>
  entries.map(([name, help]) => ({ name, type, help }));
const ofPlugins: readonly Omit<MetricSpec, 'read'>[] = [
  ...ofPlugin('gauge', Object.values(treeGauges)),
  ...ofPlugin('counter', [
    ...Object.values(treeCounters),
    ...Object.values(treeFailures),
    ...Object.values(chatMetrics),
  ]),
];

const scrape = async (t: TestContext, metricsCompat: string): Promise<string> => {
  const { work, page } = await startBusyFleet(t, { metricsCompat });
  await work();
  return page();
};

for (const peer of ['sglang', 'vllm'] as const) {
  test(`a busy router with all plugins serves what the reference says, name by name, with --metrics-compat ${peer}`, async (t) => {
    const families = read(await scrape(t, peer));
    const table = [...metrics, ...ofPlugins, ...peerMetrics[peer]];
    deepEqual([...families.keys()].toSorted(), table.map(({ name }) => name).toSorted());
    for (const { name, type, help, labels = [] } of table) {
      const family = families.get(name)!;
      deepEqual([family.type, family.help], [type, help], name);
      if (family.labels.size === 0) ok(silent.has(name) || !name.startsWith('turnout_'), `${name} has no sample`);
      else deepEqual([...family.labels], [labels.join()], name);
    }
    const values = [...families]
      .filter(([name]) => name.startsWith('turnout_'))
      .flatMap(([, family]) => [...family.values])
      .filter((value) => /^(reason|outcome|code|failure|phase|kind|state|stage|from|to|cause|policy)=/.test(value));
    ok(values.length > 20, values.join());
    deepEqual(
      values.filter((value) => !/=[a-z][a-z0-9_]*$/.test(value)),
      [],
      'label values are snake_case words',
    );
  });
}
