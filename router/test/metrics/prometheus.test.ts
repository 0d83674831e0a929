import { deepEqual, equal, ok } from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { dashboardFile } from '../../../deploy/grafana/generate.ts';
import { freePort } from '../harness/free-port.ts';
import { startBusyFleet } from '../harness/busy-fleet.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';
import { start } from './programs.ts';

const SCRAPES = 60_000;

/** Panels of what does not happen in the scene. */
const silent = new Set(['turnout_plugin_failures_total']);

type Series = readonly { readonly metric: Record<string, string>; readonly value: readonly [number, string] }[];

/** A Prometheus server that scrapes the router. @returns asks it */
async function startPrometheus(t: TestContext, target: string): Promise<(query: string) => Promise<Series>> {
  const folder = temporaryFolder(t);
  const config = join(folder, 'prometheus.yml');
  writeFileSync(
    config,
    `global: {scrape_interval: 250ms}\nscrape_configs:\n  - job_name: turnout\n    static_configs: [{targets: ['${target}']}]\n`,
  );
  const address = `127.0.0.1:${await freePort()}`;
  const child = await start('prometheus', [
    `--config.file=${config}`,
    `--storage.tsdb.path=${join(folder, 'data')}`,
    `--web.listen-address=${address}`,
    '--log.level=error',
  ]);
  const ended = new Promise((resolve) => child.once('close', resolve));
  t.after(async () => {
    child.kill();
    await ended;
  });
  const ask = async (query: string): Promise<Series> => {
    const response = await fetch(`http://${address}/api/v1/query?query=${encodeURIComponent(query)}`);
    const { data, error } = (await response.json()) as { data?: { result: Series }; error?: string };
    if (data === undefined) throw new Error(`${query}: ${error}`);
    return data.result;
  };
  const isUp = async (): Promise<boolean> => (await ask('up').catch(() => []))[0]?.value[1] === '1';
  await until('Prometheus has scraped the router', isUp, SCRAPES);
  return ask;
}

interface Dashboard {
  readonly panels: readonly { readonly title: string; readonly targets?: readonly { readonly expr: string }[] }[];
}

test('a Prometheus server scrapes a busy router, and no panel of the Grafana dashboard is empty', async (t) => {
  const { router, work } = await startBusyFleet(t);
  const ask = await startPrometheus(t, new URL(router.metricsUrl).host);
  await work();
  // A counter with labels has a rate from its second value on.
  const scrapes = async (): Promise<number> => Number((await ask('count_over_time(up[10m])'))[0]?.value[1] ?? 0);
  const before = await scrapes();
  await until('what happened is scraped', async () => (await scrapes()) > before + 1, SCRAPES);
  await work();
  const second = await scrapes();
  await until('what happened since is scraped', async () => (await scrapes()) > second + 1, SCRAPES);

  const series = await ask('turnout_requests_total{outcome="complete"}');
  ok(Number(series[0]!.value[1]) > 40);
  const { panels } = JSON.parse(readFileSync(dashboardFile, 'utf8')) as Dashboard;
  const empty: string[] = [];
  let asked = 0;
  for (const { title, targets = [] } of panels) {
    for (const { expr } of targets) {
      asked++;
      const query = expr.replaceAll('$__rate_interval', '10m').replaceAll(/\$(?:job|instance)/g, '.*');
      const result = await ask(query);
      if (result.every(({ value }) => value[1] === 'NaN')) empty.push(`${title}: ${expr}`);
    }
  }
  ok(asked > 50);
  deepEqual(
    empty.filter((line) => ![...silent].some((name) => line.includes(name))),
    [],
  );
  equal((await ask('count(count by (__name__) ({__name__=~"turnout_.*"}))')).length, 1);
});
