import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { request } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { moduleOf } from '../harness/plugin-module.ts';
import { HELLO, startScene, untilIdle } from '../harness/router.ts';
import { PATIENCE_MS } from '../harness/within.ts';
import { labelOf } from '../../src/phases/table.ts';

const fails = `() => { throw new Error('on purpose'); }`;
const hangs = `() => new Promise(() => {})`;

/** By phase: what the plugin does there, and whether it fails the request. */
const cases = [
  ['retarget', fails],
  ['retarget', hangs],
  ['retarget', `({ head }) => { if (head.target === '/fail') head.target = undefined; }`],
  ['retarget', `({ head }) => { if (head.target === '/fail') head.target = '/x\\r\\nother: 1'; }`],
  ['appliesTo', fails],
  ['classify', fails],
  ['classify', hangs],
  ['classify', `(x) => { x.key = undefined; }`],
  ['classify', `(x) => { x.key = undefined; throw new Error('on purpose'); }`],
  ['classify', `(x) => { x.target = x.path; }`],
  ['classify', `(x) => { x.model = 5; }`],
  ['admit', fails],
  ['admit', hangs],
  ['admit', `() => 'no'`],
  ['choose', fails],
  ['choose', `() => [{}]`],
  ['choose', `async () => []`],
  ['requestBody', fails],
  ['requestBody', hangs],
  ['requestBody', `() => 'text'`],
  ['requestBody', `(x, body) => { x.engineTarget = 'no path'; return body; }`],
  ['responseHead', fails],
  ['responseBody', fails],
  ['responseBody', hangs],
  ['responseBody', `async () => 'text'`],
] as const;

for (const [phase, code] of cases) {
  test(`${phase}: ${code}: 500 with its name, counted, and the router goes on`, async (t) => {
    const applies = phase === 'appliesTo' ? '' : `appliesTo: ({ path }) => path === '/fail',`;
    const path = moduleOf(t, `{ name: 'clumsy', create: () => ({ finished() {}, ${applies} ${phase}: ${code} }) }`);
    const lines: string[] = [];
    const log = pino({ level: 'error' }, { write: (line: string) => void lines.push(line) });
    const { client, engine, router } = await startScene(t, { plugin: [path], pluginTimeoutMs: 50 }, { log });
    engine.onRequest = ({ connection }) => connection.write(answer(200, 'ok'));
    client.write(request('POST', '/fail', '{}'));
    const got = await client.answer();
    deepEqual([got.status, got.get('x-turnout-error')], [500, 'plugin_failed']);
    match(got.text, /The plugin \\"clumsy\\" failed: /);
    await untilIdle(router);
    if (phase !== 'appliesTo' && phase !== 'retarget') {
      client.write(HELLO);
      equal((await client.answer()).text, 'ok');
    }
    const metrics = await (await fetch(`${router.url}/metrics`)).text();
    match(metrics, new RegExp(`turnout_plugin_failures_total\\{plugin="clumsy",phase="${labelOf(phase)}"\\} \\d`));
    const said = lines.map((line) => JSON.parse(line) as { plugin: string; in: string; msg: string });
    ok(said.some(({ plugin, in: where, msg }) => plugin === 'clumsy' && where === phase && msg === 'plugin failed'));
  });
}

test('a metric that cannot be read, or hangs, is missing on the page; the others are there', async (t) => {
  const collects = { bad: fails, stuck: hangs, good: `function () { this.set(7); }` };
  const gauges = Object.entries(collects).map(
    ([name, code]) => `metrics.gauge({ name: '${name}', help: 'x', collect: ${code} });`,
  );
  const path = moduleOf(
    t,
    `{ name: 'clumsy', create(_, { metrics }) { ${gauges.join(' ')} return { finished() {} }; } }`,
  );
  const { router } = await startScene(t, { plugin: [path], pluginTimeoutMs: 50 });
  const metrics = await (await fetch(router.metricsUrl, { signal: AbortSignal.timeout(PATIENCE_MS) })).text();
  match(metrics, /^good 7$/m);
  match(metrics, /^turnout_workers/m);
  ok(!/^(bad|stuck)\b/m.test(metrics));
});

test('faults are logged ever more rarely, and counted each', async (t) => {
  const path = moduleOf(t, `{ name: 'clumsy', create: () => ({ finished: ${fails} }) }`);
  const lines: string[] = [];
  const log = pino({ level: 'error' }, { write: (line: string) => void lines.push(line) });
  const { exchange, router } = await startScene(t, { plugin: [path] }, { log });
  for (let i = 0; i < 9; i++) equal((await exchange(HELLO, answer(200, 'ok'))).text, 'ok');
  await untilIdle(router);
  const metrics = await (await fetch(`${router.url}/metrics`)).text();
  ok(metrics.includes('turnout_plugin_failures_total{plugin="clumsy",phase="finished"} 9'));
  deepEqual(
    lines.map((line) => (JSON.parse(line) as { count: number }).count),
    [1, 2, 4, 8],
  );
});

test('an observer that fails to say whether it is behind: the answer goes on, and it is counted', async (t) => {
  const observer = `{ observe() {}, isBehind: ${fails} }`;
  const path = moduleOf(t, `{ name: 'clumsy', create: () => ({ observeResponse: () => (${observer}) }) }`);
  const { ask, client, router } = await startScene(t, { plugin: [path] }, { log: pino({ level: 'silent' }) });
  const asked = await ask(HELLO);
  asked.beginStream();
  for (const event of ['data: 1\n\n', 'data: 2\n\n']) {
    asked.connection.write(chunk(event));
    ok((await client.read(chunk(event))).endsWith(chunk(event)));
  }
  asked.connection.write('0\r\n\r\n');
  await untilIdle(router);
  const metrics = await (await fetch(`${router.url}/metrics`)).text();
  match(metrics, /turnout_plugin_failures_total\{plugin="clumsy",phase="observe_response"\} [1-9]/);
});

test('an observer that stays behind for longer than the plugin timeout is dropped: the answer goes on', async (t) => {
  const path = moduleOf(
    t,
    `{ name: 'clumsy', create: () => ({ observeResponse: () => ({ observe() {}, isBehind: () => true }) }) }`,
  );
  const options = { plugin: [path], pluginTimeoutMs: 50 };
  const { ask, client, router } = await startScene(t, options, { log: pino({ level: 'silent' }) });
  const asked = await ask(HELLO);
  asked.beginStream();
  for (const event of ['data: 1\n\n', 'data: 2\n\n', 'data: 3\n\n']) {
    asked.connection.write(chunk(event));
    ok((await client.read(chunk(event))).endsWith(chunk(event)));
  }
  asked.connection.write('0\r\n\r\n');
  await untilIdle(router);
  const metrics = await (await fetch(`${router.url}/metrics`)).text();
  match(metrics, /turnout_plugin_failures_total\{plugin="clumsy",phase="observe_response"\} 1\n/);
});
