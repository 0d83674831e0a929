import { doesNotMatch, equal, match, ok } from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { turnout } from '../cli/turnout.ts';
import { request, send } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

test('the start says where the metrics are, also where the port was picked', async (t) => {
  const run = turnout(t, ['serve', '--port', '0', '--prometheus-port', '0']);
  const [, url] = await run.says(/metrics on (http:\/\/127\.0\.0\.1:\d+)\/metrics/);
  equal((await fetch(`${url}/metrics`)).status, 200);
});

for (const flag of ['--port', '--admin-port', '--prometheus-port']) {
  test(`${flag} is taken: said before folders are made, files opened and workers added`, async (t) => {
    const engine = await startEngine(t);
    const { port } = new URL(engine.url);
    const { hostname } = new URL(engine.url);
    const hosts = ['--host', hostname, '--admin-host', hostname, '--prometheus-host', hostname];
    const dataDir = join(temporaryFolder(t), 'data');
    const other = ['--port', '--prometheus-port'].flatMap((name) => (name === flag ? [] : [name, '0']));
    const run = turnout(t, [
      'serve',
      ...hosts,
      ...other,
      flag,
      port,
      '--data-dir',
      dataDir,
      '--worker-urls',
      engine.url,
    ]);
    equal(await run.ended, 2);
    match(run.output(), new RegExp(`turnout: ${flag} ${port}: another process`));
    doesNotMatch(run.output(), /worker added/);
    ok(!existsSync(dataDir));
  });
}

for (const flag of ['--port', '--admin-port', '--prometheus-port']) {
  test(`${flag} is taken by a process that --reuse-port does not share it with: no worker is added`, async (t) => {
    const engine = await startEngine(t);
    const { port } = new URL(engine.url);
    const { hostname } = new URL(engine.url);
    const hosts = ['--host', hostname, '--admin-host', hostname, '--prometheus-host', hostname];
    const other = ['--port', '--prometheus-port'].flatMap((name) => (name === flag ? [] : [name, '0']));
    const run = turnout(t, ['serve', '--reuse-port', ...hosts, ...other, flag, port, '--worker-urls', engine.url]);
    equal(await run.ended, 2);
    match(run.output(), new RegExp(`turnout: ${flag} ${port}: another process`));
    doesNotMatch(run.output(), /worker added/);
  });
}

test('model_id is what the worker lists, where none is set', async (t) => {
  const list = JSON.stringify({ object: 'list', data: [{ id: 'served' }] });
  const engine = await startEngine(t, { control: (path) => answer(200, path === '/v1/models' ? list : '') });
  const router = await startTestRouter(t, { workerUrls: [engine.url], disableHealthCheck: false });
  await until('its models are known', () => router.fleet.workers[0]!.models !== null);
  const { text } = await send(t, router.url, request('GET', '/workers'));
  const { workers } = JSON.parse(text) as { workers: { model_id: string; models: string[] }[] };
  equal(workers[0]!.model_id, 'served');
});
