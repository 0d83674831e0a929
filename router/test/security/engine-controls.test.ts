import { deepEqual, equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { reportOf } from '../control/report.ts';
import { request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { startTestRouter } from '../harness/router.ts';

const PATHS = [
  '/pause',
  '/pause_generation',
  '/update_weights_from_tensor',
  '/collective_rpc',
  '/flush_cache',
  '/sleep',
];

async function scene(t: test.TestContext, options: object) {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('{"engine":true}') });
  const router = await startTestRouter(t, { workerUrls: [engine.url], ...options });
  const post = async (target: string, key: string, body = '{}') =>
    send(t, router.url, request('POST', target, body, [`authorization: Bearer ${key}`]));
  return { engine, router, post };
}

test('engine controls need an admin key; with it they reach the engine, the key does not', async (t) => {
  const { engine, post } = await scene(t, { apiKey: ['data-key'], adminApiKey: ['admin-key'] });
  for (const path of PATHS) {
    const refused = await post(path, 'data-key');
    equal(refused.status, 403, path);
    equal(refused.get('x-turnout-error'), 'forbidden');
    match(refused.text, /--admin-api-key/);
    equal((await post(path, 'wrong')).status, 401, path);
  }
  equal(engine.requests.length, 0);
  for (const path of PATHS) equal((await post(path, 'admin-key')).status, 200, path);
  equal((await post('/v1/completions', 'data-key')).status, 200);
  for (const { head } of engine.requests) equal(head.get('authorization'), undefined);
});

test('with one kind of keys, that kind is enough for engine controls', async (t) => {
  const { post } = await scene(t, { apiKey: ['data-key'] });
  equal((await post('/pause', 'wrong')).status, 401);
  equal((await post('/pause', 'data-key')).status, 200);
});

test('aborting a request by its id is for everybody, aborting all is not', async (t) => {
  const { engine, router, post } = await scene(t, { apiKey: ['data-key'], adminApiKey: ['admin-key'] });
  equal((await post('/abort_request', 'data-key', '{"rid":"mine0001"}')).status, 200);
  equal((await engine.next()).wireBody.payload.join(''), '{"rid":"mine0001"}');
  equal((await post('/abort_requests', 'data-key', '{"request_ids":["mine"]}')).status, 200);
  for (const [path, body] of [
    ['/abort_request', '{"abort_all":true}'],
    ['/abort_request', '{"rid":"","abort_all":false}'],
    ['/abort_request', '{"rid":"m"}'],
    ['/abort_request', '{"rid":"mine0001","abort_all":true}'],
    ['/abort_request', ''],
    ['/abort_request', `{"rid":"mine0001","x":"${'x'.repeat(70_000)}"}`],
    ['/abort_requests', '{}'],
    ['/inference/v1/abort_requests', '{"request_ids":[]}'],
  ] as const) {
    const got = await post(path, 'data-key', body);
    equal(got.status, 403, `${path} ${body.slice(0, 100)}`);
    equal(got.get('x-turnout-error'), 'forbidden');
  }
  equal(engine.requests.length, 2);
  equal((await post('/abort_request', 'admin-key', '{"abort_all":true}')).status, 200);
  equal((await post('/abort_request', 'wrong', '{"rid":"mine0001"}')).status, 401);

  const chunked = (body: string) =>
    `POST /abort_request HTTP/1.1\r\nhost: h\r\nauthorization: Bearer data-key\r\ntransfer-encoding: chunked\r\n\r\n` +
    `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  equal((await send(t, router.url, chunked('{"abort_all":true}'))).status, 403);
  equal((await send(t, router.url, chunked('{"rid":"mine0001"}'))).status, 200);
});

test('only who may control engines is told their addresses', async (t) => {
  const { engine, router, post } = await scene(t, {
    apiKey: ['data-key'],
    adminApiKey: ['admin-key'],
    workerApi: 'vllm',
  });
  const { id } = router.fleet.workers[0]!;
  const workerIn = async (key: string) => reportOf(await post('/abort_request', key, '{"rid":"mine0001"}')).results[0]!;
  equal((await workerIn('data-key')).worker, id);
  equal((await workerIn('admin-key')).worker, engine.url);
  const health = async (key: string) =>
    (await send(t, router.url, request('GET', '/health', '', [`x-api-key: ${key}`]))).text;
  engine.kill();
  const failed = await workerIn('data-key');
  deepEqual([failed.worker, failed.status, failed.error], [id, null, 'no connection: ECONNREFUSED']);
  router.fleet.workers[0]!.isProven = false;
  equal(await health('data-key'), `Unhealthy servers: ["${engine.url}"]`);
  for (const key of ['', 'wrong']) equal(await health(key), 'Unhealthy servers: 1');
});

test('with one kind of keys, its holders are told the addresses', async (t) => {
  const { engine, post } = await scene(t, { apiKey: ['data-key'] });
  equal(reportOf(await post('/abort_request', 'data-key', '{"rid":"mine0001"}')).results[0]!.worker, engine.url);
});

test('with --admin-port, what steers is taken there only', async (t) => {
  const { engine, router, post } = await scene(t, { adminPort: 0 });
  const steer = async (url: string, method: string, target: string, body = '') =>
    (await send(t, url, request(method, target, body))).status;
  for (const [method, target, body] of [
    ['GET', '/workers', ''],
    ['POST', '/add_worker?url=http://127.0.0.1:9', ''],
    ['GET', '/policies', ''],
    ['POST', '/pause', '{}'],
    ['POST', '/abort_request', '{"abort_all":true}'],
  ] as const) {
    equal(await steer(router.url, method, target, body), 403, target);
  }
  match((await post('/pause', '-')).text, /--admin-port/);
  equal(engine.requests.length, 0);
  equal(await steer(router.url, 'GET', '/health'), 200);
  equal(await steer(router.url, 'GET', '/metrics'), 200);
  equal(await steer(router.url, 'POST', '/abort_request', '{"rid":"mine0001"}'), 200);

  const adminUrl = router.adminUrl!;
  equal(await steer(adminUrl, 'GET', '/workers'), 200);
  equal(await steer(adminUrl, 'POST', '/pause', '{}'), 200);
  equal(await steer(adminUrl, 'POST', '/abort_request', '{"abort_all":true}'), 200);
  equal(await steer(adminUrl, 'POST', '/v1/completions', '{}'), 200);
  equal(await steer(adminUrl, 'GET', '/metrics'), 200);
});

test('keys are asked for on the admin port too', async (t) => {
  const { router } = await scene(t, { adminPort: 0, adminApiKey: ['admin-key'] });
  const get = async (key: string) =>
    (await send(t, router.adminUrl!, request('GET', '/workers', '', [`authorization: Bearer ${key}`]))).status;
  equal(await get('wrong'), 401);
  equal(await get('admin-key'), 200);
});
