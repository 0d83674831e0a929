import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { moduleOf } from '../harness/plugin-module.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';

const FORM = 'content-type: application/x-www-form-urlencoded';
const JSON_TYPE = 'content-type: application/json';
const FOREIGN = 'origin: https://evil.example';
const KEY = 'authorization: Bearer admin';

/** A router with an engine; `ask` sends a request of these lines, to localhost if they have no Host. */
async function scene(t: TestContext, options: RouterOptions = {}) {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('{}') });
  const router = await startTestRouter(t, { workerUrls: [engine.url], allowedHosts: [], ...options });
  const ask = async (method: string, target: string, lines: readonly string[], body = '', url = router.url) => {
    const named = lines.some((line) => /^host:/i.test(line)) ? lines : ['host: localhost:30000', ...lines];
    const length = method === 'GET' ? [] : [`content-length: ${body.length}`];
    const bytes = [`${method} ${target} HTTP/1.1`, ...named, ...length, '', body].join('\r\n');
    const got = await send(t, url.replace('0.0.0.0', '127.0.0.1'), bytes);
    return { status: got.status, code: got.get('x-turnout-error') ?? null, text: got.text };
  };
  return { engine, router, ask };
}

test('pages of other origins neither control the router and its engines nor read it', async (t) => {
  const { engine, router, ask } = await scene(t, { swapSnapshots: '/snapshots/{identity}' });
  const worker = JSON.stringify({ url: engine.url.replace(/\d+$/, '9') });
  for (const lines of [
    [FOREIGN],
    ['origin: null'],
    ['origin: http://localhost:8888'],
    [FOREIGN, 'sec-fetch-site: cross-site'],
    ['sec-fetch-site: cross-site'],
    ['origin: http://localhost:8888', 'sec-fetch-site: same-site'],
  ]) {
    for (const [method, target, body = ''] of [
      ['POST', '/workers', worker],
      ['POST', '/add_worker?url=http://127.0.0.1:9'],
      ['POST', '/pause_generation', '{}'],
      ['POST', '/swap', '{"snapshot":"s"}'],
      ['POST', '/swap/begin', '{}'],
      ['POST', '/swap/end', '{}'],
      ['GET', '/swap'],
      ['POST', '/prefix//pause', '{}'],
      ['POST', '/abort_request', '{"abort_all":true}'],
      ['GET', '/flush_cache'],
      ['GET', '/workers'],
      ['GET', '/sessions'],
      ['POST', '/finish_session', '{"session_id":"s"}'],
    ] as const) {
      const got = await ask(method, target, lines, body);
      deepEqual([got.status, got.code], [403, 'foreign_page'], `${method} ${target} ${lines.join(', ')}`);
    }
  }
  equal(engine.requests.length, 0);
  equal(router.fleet.workers.length, 1);
  match((await ask('GET', '/workers', [FOREIGN])).text, /--cors-allowed-origins/);
});

test('a plugin that begins sessions for clients does not show the list of all sessions to pages', async (t) => {
  const plugin = moduleOf(
    t,
    `{ name: 'mine', create: () => ({ routes: ({ forClients }) => void forClients.post('/sessions', (c) => c.json({})) }) }`,
  );
  const { ask } = await scene(t, { plugin: [plugin] });
  for (const line of ['host: evil.example', FOREIGN]) {
    deepEqual((await ask('GET', '/sessions', [line])).code, 'foreign_page', line);
    deepEqual((await ask('POST', '/sessions', [line])).status, 200, line);
  }
  equal((await ask('GET', '/sessions', [])).status, 200);
});

test('a name that is not the router’s reads and controls nothing on a loopback address', async (t) => {
  const { engine, ask } = await scene(t);
  for (const host of [
    'evil.example',
    'evil.example:30000',
    'localhost.evil.example',
    'router',
    '[evil]',
    '127.0.0.1.evil.example',
  ]) {
    for (const target of ['/workers', '/requests', '/metrics', '/flush_cache', '/sessions']) {
      const got = await ask('GET', target, [`host: ${host}`, 'sec-fetch-site: same-origin']);
      deepEqual([got.status, got.code], [403, 'foreign_page'], `${target} at ${host}`);
      match(got.text, /--allowed-hosts/);
    }
  }
  equal(engine.requests.length, 0);
  for (const host of ['localhost', 'LOCALHOST.:1', 'a.localhost', '127.0.0.1:30000', '[::1]:30000', '10.1.2.3']) {
    equal((await ask('GET', '/workers', [`host: ${host}`])).status, 200, host);
  }
  // Probes and generation are for all names.
  equal((await ask('GET', '/health', ['host: pod.svc', FOREIGN])).status, 200);
  equal((await ask('POST', '/v1/completions', ['host: pod.svc', JSON_TYPE, FOREIGN], '{}')).status, 200);
});

test('the metrics port answers to the same names', async (t) => {
  const { router, ask } = await scene(t);
  const url = new URL(router.metricsUrl).origin;
  equal((await ask('GET', '/metrics', ['host: evil.example', 'connection: close'], '', url)).status, 403);
  equal((await ask('GET', '/metrics', ['host: 10.0.0.1:29000', 'connection: close'], '', url)).status, 200);
});

test('--allowed-hosts, other addresses, and keys', async (t) => {
  const named = await scene(t, { allowedHosts: ['Router.example', '*.svc'] });
  const open = await scene(t, { host: '0.0.0.0' });
  const limited = await scene(t, { host: '0.0.0.0', allowedHosts: ['router'] });
  const keyed = await scene(t, { adminApiKey: ['admin'] });
  const status = async ({ ask }: typeof named, host: string, ...more: string[]) =>
    (await ask('GET', '/workers', [`host: ${host}`, ...more])).status;
  deepEqual(
    [
      await status(named, 'router.example:8080'),
      await status(named, 'a.svc'),
      await status(named, 'svc'),
      await status(named, 'other'),
    ],
    [200, 200, 403, 403],
  );
  equal(await status(open, 'turnout.default.svc.cluster.local'), 200, 'names on a network are not known');
  equal(await status(open, 'machine', FOREIGN), 403);
  deepEqual(
    [await status(limited, 'router'), await status(limited, '10.0.0.7:30000'), await status(limited, 'other')],
    [200, 200, 403],
  );
  deepEqual([await status(keyed, 'any.name', KEY, FOREIGN), await status(keyed, 'any.name')], [200, 401]);
  // What needs no key there is checked.
  equal((await keyed.ask('POST', '/finish_session', ['host: any.name'], '{}')).status, 403);
  equal((await keyed.ask('POST', '/pause_generation', [KEY, FORM], '{}')).status, 200);
});

test('pages of the router and of allowed origins, and clients that are no browsers', async (t) => {
  const { ask } = await scene(t, { corsAllowedOrigins: ['https://app.example'] });
  const pause = async (...lines: string[]) => (await ask('POST', '/pause_generation', lines, '{}')).status;
  equal(await pause(JSON_TYPE), 200);
  equal(await pause(), 200, 'Python’s requests with bytes states no type');
  equal(await pause(JSON_TYPE, 'origin: http://localhost:30000'), 200);
  equal(await pause(JSON_TYPE, 'host: 10.0.0.1', 'origin: https://proxy.example', 'sec-fetch-site: same-origin'), 200);
  equal(await pause(JSON_TYPE, 'origin: https://app.example', 'sec-fetch-site: cross-site'), 200);
  equal(await pause(JSON_TYPE, FOREIGN), 403);
  equal((await ask('GET', '/workers', ['sec-fetch-site: none'])).status, 200, 'typed by a user');
  equal((await ask('POST', '/flush_cache', [FORM])).status, 200, 'no body');
  equal((await ask('POST', '/add_worker?url=http://127.0.0.1:9', [])).status, 200);
});

test('a control request with a body of a type that pages may send gets 415 with what to write', async (t) => {
  const { engine, ask } = await scene(t);
  for (const type of [
    FORM,
    'content-type: text/plain; application/json',
    'Content-Type: Multipart/Form-Data; boundary=b',
  ]) {
    for (const target of ['/workers', '/pause_generation', '/update_weights_from_disk', '/policies']) {
      const got = await ask(target === '/policies' ? 'PUT' : 'POST', target, [type], '{}');
      deepEqual([got.status, got.code], [415, 'not_json'], `${target} ${type}`);
      ok(got.text.includes("-H 'content-type: application/json'"));
    }
  }
  equal(engine.requests.length, 0);
  equal((await ask('POST', '/v1/completions', [FORM], '{}')).status, 200, 'generation is not control');
  equal(
    (await ask('POST', '/update_weights_from_tensor', ['content-type: application/octet-stream'], '{}')).status,
    200,
  );
});
