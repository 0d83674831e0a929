import { deepEqual, equal, match, ok, rejects } from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { loadConfig } from '../../src/config/load.ts';
import type { Plugin } from '../../src/plugin.ts';
import { startRouter } from '../../src/router.ts';
import { folderOf, moduleOf } from '../harness/plugin-module.ts';
import { startTestRouter } from '../harness/router.ts';
import { PATIENCE_MS } from '../harness/within.ts';

const COUNTER = `{
  name: 'counter',
  create: (_options, { metrics, dataDir, log }) => {
    const asked = metrics.counter({ name: 'counter_asked_total', help: 'Times that it was asked.' });
    log.info({ dataDir }, 'made');
    return {
      routes({ forClients, forAdmins }) {
        forClients.post('/counter', async (c) => {
          asked.inc();
          return c.json({ bytes: (await c.req.text()).length });
        });
        forClients.get('/counters/:name', (c) => c.json({ name: c.req.param('name') }));
        forAdmins.delete('/counter/all', (c) => c.body(null, 204));
        forAdmins.get('/counter/fail', () => { throw new Error('on purpose'); });
        forAdmins.get('/counter/hang', () => new Promise(() => {}));
        forAdmins.get('/counter/mute', () => {});
        forAdmins.get('/counter/number', () => 5);
        forClients.get('/counter/behind', (c, next) => next(), (c) => c.text('answered behind'));
      },
    };
  },
}`;

test('endpoints of a plugin are served beside the router’s own, and its metrics are on the page', async (t) => {
  const router = await startTestRouter(t, { plugin: [moduleOf(t, COUNTER)], pluginTimeoutMs: 50 });
  const ask = async (method: string, path: string, body?: string) => {
    const got = await fetch(router.url + path, { method, ...(body !== undefined && { body }) });
    return [got.status, await got.text(), got.headers.get('x-turnout-error')];
  };
  // More than the router's own endpoints take.
  deepEqual(await ask('POST', '/counter', 'x'.repeat(300_000)), [200, '{"bytes":300000}', null]);
  deepEqual(await ask('GET', '/counters/some%20name'), [200, '{"name":"some name"}', null]);
  deepEqual(await ask('DELETE', '/counter/all'), [204, '', null]);
  deepEqual((await ask('GET', '/counter'))[0], 405);
  deepEqual(await ask('GET', '/counter/behind'), [200, 'answered behind', null]);
  for (const [path, words] of [
    ['/counter/fail', /"counter\\" failed: on purpose/],
    ['/counter/hang', /"counter\\" failed: gave no answer within 50 ms/],
    ['/counter/mute', /"counter\\" failed: GET \/counter\/mute has to answer with a Response/],
    ['/counter/number', /"counter\\" failed: GET \/counter\/number has to answer with a Response/],
  ] as const) {
    const [status, text, code] = await ask('GET', path);
    deepEqual([status, code], [500, 'plugin_failed']);
    match(String(text), words);
  }
  const page = (await ask('GET', '/metrics'))[1] as string;
  match(
    page,
    /\n# HELP counter_asked_total Times that it was asked\.\n# TYPE counter_asked_total counter\ncounter_asked_total 1\n/,
  );
  ok(page.includes('turnout_plugin_failures_total{plugin="counter",phase="routes"} 4'));
  equal(await (await fetch(router.metricsUrl)).text().then((text) => text.includes('counter_asked_total 1')), true);
});

test('a response to HEAD has the head of the response to GET, and its body is cancelled', async (t) => {
  let cancelled = 0;
  const body = () => new ReadableStream({ cancel: () => void cancelled++ }, { highWaterMark: 0 });
  const plugin: Plugin = {
    name: 'streaming',
    routes({ forClients }) {
      forClients.get(
        '/stream',
        () => new Response(body(), { headers: { 'x-kind': 'stream', 'transfer-encoding': 'chunked' } }),
      );
      forClients.get('/whole', (c) => c.json({ method: c.req.method }));
    },
  };
  const router = await startTestRouter(t, {}, { plugins: [plugin] });
  for (let i = 0; i < 2; i++) {
    const { status, headers } = await fetch(`${router.url}/stream`, { method: 'HEAD' });
    deepEqual([status, headers.get('x-kind'), cancelled], [200, 'stream', i + 1]);
  }
  const whole = await fetch(`${router.url}/whole`, { method: 'HEAD' });
  deepEqual([whole.status, whole.headers.get('content-type'), await whole.text()], [200, 'application/json', '']);
});

test('a plugin may give its endpoints more time than requests have', async (t) => {
  const patient = moduleOf(
    t,
    `{
      name: 'patient',
      create: () => ({
        timeoutMs: 60_000,
        routes: ({ forClients }) =>
          forClients.get('/patient', async (c) => {
            await new Promise((resolve) => setTimeout(resolve, 50));
            return c.text('here');
          }),
      }),
    }`,
  );
  const router = await startTestRouter(t, { plugin: [patient], pluginTimeoutMs: 1 });
  const got = await fetch(`${router.url}/patient`);
  deepEqual([got.status, await got.text()], [200, 'here']);
});

test('access: endpoints for clients with any key, those for admins with an admin key', async (t) => {
  const router = await startTestRouter(t, { plugin: [moduleOf(t, COUNTER)], apiKey: ['data'], adminApiKey: ['admin'] });
  const ask = async (method: string, path: string, key: string) =>
    (await fetch(router.url + path, { method, headers: key === '' ? {} : { authorization: `Bearer ${key}` } })).status;
  deepEqual(
    [await ask('POST', '/counter', ''), await ask('POST', '/counter', 'data'), await ask('POST', '/counter', 'admin')],
    [401, 200, 200],
  );
  deepEqual([await ask('DELETE', '/counter/all', 'data'), await ask('DELETE', '/counter/all', 'admin')], [403, 204]);
});

test('a router that can not have its plugins does not start, and closes those that were made', async (t) => {
  const folder = folderOf(t, {});
  const closed = join(folder, 'closed');
  const first = moduleOf(
    t,
    `{
      name: 'first',
      create: () => {
        const timer = setInterval(() => {}, 1000);
        return {
          finished() {},
          async close() {
            clearInterval(timer);
            (await import('node:fs')).appendFileSync(${JSON.stringify(closed)}, 'x');
          },
        };
      },
    }`,
  );
  const routes = (route: string) =>
    `{ name: 'b', create: () => ({ routes: (r) => r.forClients.get('${route}', () => {}) }) }`;
  let starts = 0;
  for (const [exported, words] of [
    [`{ name: 'b', create: () => { throw new Error('no tokenizer'); } }`, /mine\.ts" can't be made: no tokenizer/],
    [
      `{ name: 'b', create: async () => ({ onRequest() {} }) }`,
      /mine\.ts" made nothing with one of retarget, classify, admit, answer/,
    ],
    [`{ name: 'b', create: () => undefined }`, /made nothing with one of/],
    [`{ name: 'b', create: () => ({ admit: true, finished() {} }) }`, /mine\.ts" has admit, which is no function/],
    [`{ name: 'b', create: () => ({ appliesTo: 'all', finished() {} }) }`, /has appliesTo, which is no function/],
    [`{ name: 'b', create: () => ({ timeoutMs: '5', finished() {} }) }`, /has timeoutMs, which is no number of milli/],
    [`{ name: 'b', create: () => ({ timeoutMs: 1e10, finished() {} }) }`, /has timeoutMs, which is no number of milli/],
    [`{ name: 'b', create: () => ({ pathPrefix: 'v1', finished() {} }) }`, /has pathPrefix, which does not begin with/],
    [`{ name: 'first', create: () => ({ finished() {} }) }`, /is named "first", as another one is/],
    [
      routes('/generate').replace('.get(', '.post('),
      /"b" wants POST \/generate, which is a generation path of engines: respond to it in/,
    ],
    [routes('/workers'), /"b" wants GET \/workers, which is the router's own/],
    [routes('/workers/mine'), /"b" wants GET \/workers\/mine, which is the router's own/],
    [routes('/:all'), /"b" wants GET \/:all; paths are like/],
    [routes('/mine/*'), /"b" wants GET \/mine\/\*; paths are like/],
    [`{ name: 'b', create: () => ({ routes() { throw new Error('oops'); } }) }`, /"b" can't add its endpoints: oops/],
    [
      `{ name: 'b', create: (_, { metrics }) => metrics.gauge({ name: 'turnout_workers', help: 'x' }) }`,
      /can't be made: the metric turnout_workers is the router's own/,
    ],
  ] as const) {
    const config = loadConfig(
      { port: 0, prometheusPort: 0, logLevel: 'critical', plugin: [first, moduleOf(t, exported)] },
      {},
      undefined,
    );
    await rejects(startRouter(config), words, exported);
    equal(readFileSync(closed, 'utf8'), 'x'.repeat(++starts), exported);
  }
});

test('a plugin is closed when the router has stopped, also where another one hangs at that', async (t) => {
  const closed = join(folderOf(t, {}), 'closed');
  const plugin = (name: string, close: string) =>
    moduleOf(t, `{ name: '${name}', create: () => ({ finished() {}, ${close} }) }`);
  const config = {
    plugin: [
      plugin('a', `async close() { (await import('node:fs')).writeFileSync(${JSON.stringify(closed)}, ''); }`),
      plugin('b', 'close: () => new Promise(() => {})'),
    ],
    pluginTimeoutMs: 50,
  };
  const router = await startTestRouter(t, config);
  equal(existsSync(closed), false);
  await router.close();
  equal(existsSync(closed), true);
});

test('an endpoint of a plugin that sends events sends them as they come, and stops when its client leaves', async (t) => {
  const ticks = Promise.withResolvers<void>();
  const router = await startTestRouter(
    t,
    {},
    {
      plugins: [
        {
          name: 'ticker',
          routes: ({ forClients }) =>
            void forClients.get('/ticks', () => {
              const body = new ReadableStream({
                start: (stream) => stream.enqueue(Buffer.from('data: 1\n\n')),
                cancel: () => ticks.resolve(),
              });
              return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
            }),
        },
      ],
    },
  );
  const leaving = new AbortController();
  const response = await fetch(`${router.url}/ticks`, {
    signal: AbortSignal.any([leaving.signal, AbortSignal.timeout(PATIENCE_MS)]),
  });
  const { value } = await response.body!.getReader().read();
  equal(Buffer.from(value).toString(), 'data: 1\n\n');
  leaving.abort();
  await ticks.promise;
});
