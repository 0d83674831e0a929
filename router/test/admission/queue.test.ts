import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { type Client, connectClient, request, send } from '../harness/client.ts';
import type { EngineRequest } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, type RouterOptions, type Scene, startScene, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { undisturbed } from '../harness/undisturbed.ts';
import { until } from '../harness/within.ts';
import { metric } from './metric.ts';

const depth = (router: Scene['router'], reason = 'concurrency'): Promise<number> =>
  metric(router, `turnout_queue_depth{reason="${reason}"}`);

/** A router for one at a time, which is busy with a first request. */
async function startBusyScene(
  t: TestContext,
  options: RouterOptions = {},
): Promise<Scene & { running: EngineRequest; wait(target: string, fields?: readonly string[]): Promise<Client> }> {
  const scene = await startScene(t, { maxConcurrentRequests: 1, ...options });
  const running = await scene.ask(HELLO);
  let waiting = 0;
  const wait = async (target: string, fields: readonly string[] = []): Promise<Client> => {
    const client = await connectClient(t, scene.router.url);
    client.write(request('GET', target, '', fields));
    waiting++;
    await until('it waits', async () => (await depth(scene.router)) === waiting);
    return client;
  };
  return { ...scene, running, wait };
}

test('a place is held until the last byte of the answer; then the next one has it', async (t) => {
  const { engine, running, client, router, wait } = await startBusyScene(t);
  const next = await wait('/next');
  running.beginStream();
  running.connection.write(chunk('data: 1\n\n'));
  await client.read('data: 1\n\n');
  running.connection.write(chunk('data: 2\n\n'));
  await client.read('data: 2\n\n');
  deepEqual([engine.requests.length, await depth(router)], [1, 1]);
  running.connection.write('0\r\n\r\n');
  const asked = await engine.next();
  equal(asked.target, '/next');
  asked.answer('"done"');
  equal((await next.answer()).text, '"done"');
  await untilIdle(router);
  equal(await depth(router), 0);
  equal(await metric(router, 'turnout_queue_wait_seconds_count'), 1);
  equal(await metric(router, 'turnout_requests_queued_total{reason="concurrency"}'), 1);
});

test('the bound holds under many: never more at the engine, and everybody is served', async (t) => {
  let most = 0;
  let now = 0;
  const { engine, router } = await startScene(t, { maxConcurrentRequests: 3, queueSize: 1_000 });
  engine.onRequest = (asked) => {
    most = Math.max(most, ++now);
    asked.beginStream();
    setTimeout(() => {
      now--;
      asked.connection.write(`${chunk('x')}0\r\n\r\n`);
    }, 2);
  };
  const answers = await Promise.all(Array.from({ length: 60 }, () => send(t, router.url, HELLO)));
  deepEqual(new Set(answers.map(({ status, text }) => `${status} ${text}`)), new Set(['200 x']));
  equal(most, 3);
});

test('keys take turns: one with many requests waiting is not served before one with a single request', async (t) => {
  const { engine, running, wait } = await startBusyScene(t);
  for (const target of ['/a1', '/a2', '/a3']) await wait(target, ['x-user-id: a', `x-session-id: ${target}`]);
  await wait('/b1', ['x-session-id: b']);
  await wait('/c1', ['x-tenant-id: c']);
  await wait('/none1');
  await wait('/b2', ['x-session-id: b']);
  await wait('/none2');
  const order: string[] = [];
  let asked = running;
  for (let left = 8; left > 0; left--) {
    asked.answer('1');
    asked = await engine.next();
    order.push(asked.target);
  }
  deepEqual(order, ['/a1', '/b1', '/c1', '/none1', '/a2', '/b2', '/none2', '/a3']);
});

test('a session in the path is the key only of requests without a tenant or a fairness id', async (t) => {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const plugin = ['chat-sessions:{"verify":false}'];
  const { engine, running, wait } = await startBusyScene(t, { plugin, tokenizerPath });
  for (const name of ['a1', 'a2', 'a3']) await wait(`/sessions/${name}/${name}`, ['x-tenant-id: a']);
  for (const name of ['f1', 'f2']) await wait(`/sessions/${name}/${name}`, ['x-gateway-inference-fairness-id: f']);
  await wait('/sessions/b/b1', ['x-tenant-id: b']);
  for (const name of ['s1', 's2']) await wait(`/sessions/s/${name}`);
  await wait('/sessions/u/u1');
  const order: string[] = [];
  let asked = running;
  for (let left = 9; left > 0; left--) {
    asked.answer('1');
    asked = await engine.next();
    order.push(asked.target);
  }
  deepEqual(order, ['/a1', '/f1', '/b1', '/s1', '/u1', '/a2', '/f2', '/s2', '/a3']);
});

test('queue full: 429 with retry-after at once, in the dialect of the API; the connection lives on', async (t) => {
  const { router, running, wait, engine } = await startBusyScene(t, { queueSize: 1 });
  await wait('/waits');
  const client = await connectClient(t, router.url);
  const said: unknown[] = [];
  for (const path of ['/v1/chat/completions', '/generate', '/anything']) {
    client.write(request('POST', path, '{}'));
    const got = await client.answer();
    equal(got.status, 429);
    equal(got.get('x-turnout-error'), 'too_many_requests');
    equal(got.get('connection'), undefined);
    const secs = Number(got.get('retry-after'));
    ok(Number.isInteger(secs) && secs >= 1 && secs <= 60, got.get('retry-after'));
    said.push(JSON.parse(got.text.replace(/"1 requests are in flight[^"]*"/, '"words"')));
  }
  deepEqual(said, [
    { error: { message: 'words', type: 'invalid_request_error', param: null, code: 'too_many_requests' } },
    { error: { message: 'words', type: 'invalid_request_error', code: 429, retryable: true } },
    { error: 'words', code: 'too_many_requests' },
  ]);
  equal(await metric(router, 'turnout_shed_total{reason="queue_full"}'), 3);
  equal(engine.requests.length, 1);
  running.answer('1');
  (await engine.next()).answer('2');
});

test('a refusal does not wait for the body', async (t) => {
  const { router } = await startBusyScene(t, { queueSize: 0 });
  const client = await connectClient(t, router.url);
  client.write('POST /generate HTTP/1.1\r\nhost: h\r\ncontent-length: 4000000\r\n\r\n{');
  const got = await client.answer();
  deepEqual([got.status, got.get('connection')], [429, 'close']);
});

test('--queue-timeout-secs: 503 queue_timeout with retry-after, and the engine never gets it', async (t) => {
  const { router, running, engine } = await startBusyScene(t, { queueTimeoutSecs: 0.05 });
  const got = await send(t, router.url, request('GET', '/v1/completions'));
  deepEqual([got.status, got.get('x-turnout-error')], [503, 'queue_timeout']);
  match(got.get('retry-after')!, /^[1-9]\d*$/);
  equal((JSON.parse(got.text) as { error: { code: string } }).error.code, 'queue_timeout');
  equal(await depth(router), 0);
  running.answer('1');
  await untilIdle(router);
  equal(engine.requests.length, 1);
  equal(await metric(router, 'turnout_shed_total{reason="queue_timeout"}'), 1);
});

test('a client that leaves while it waits: its place in the queue is free, no engine gets it', async (t) => {
  const { router, running, wait, engine } = await startBusyScene(t, { queueSize: 2 });
  const left = await wait('/left');
  const stays = await wait('/stays');
  left.reset();
  await until('it has left the queue', async () => (await depth(router)) === 1);
  running.answer('1');
  const asked = await engine.next();
  equal(asked.target, '/stays');
  asked.answer('2');
  equal((await stays.answer()).text, '2');
  await untilIdle(router);
  equal(engine.requests.length, 2);
  equal(await metric(router, 'turnout_requests_total{outcome="client_left"}'), 1);
});

test('a client that leaves in the midst of its body is noticed too', async (t) => {
  const { router, running, engine } = await startBusyScene(t);
  const left = await connectClient(t, router.url);
  left.write('POST /generate HTTP/1.1\r\nhost: h\r\ncontent-length: 900000\r\n\r\n');
  left.write(Buffer.alloc(600_000, 0x20));
  await until('it waits', async () => (await depth(router)) === 1);
  left.end();
  await until('it has left the queue', async () => (await depth(router)) === 0);
  running.answer('1');
  await untilIdle(router);
  equal(engine.requests.length, 1);
});

test('a large body goes to a slow engine at that engine’s pace, after a wait too', async (t) => {
  const { router, running, engine } = await startBusyScene(t);
  const client = await connectClient(t, router.url);
  client.write('POST /generate HTTP/1.1\r\nhost: h\r\ncontent-length: 900000\r\n\r\n');
  client.write(Buffer.alloc(300_000, 0x20));
  await until('it waits', async () => (await depth(router)) === 1);
  running.answer('1');
  const asked = await engine.next();
  client.write(Buffer.alloc(600_000, 0x20));
  equal((await asked.payload()).length, 900_000);
  asked.answer('2');
  equal((await client.answer()).text, '2');
  await untilIdle(router);
});

test('the total deadline counts the wait', async (t) => {
  const { client, engine, router } = await startScene(t, { rateLimitTokensPerSecond: 0.1 });
  engine.onRequest = (asked) => asked.answer('1');
  client.write(HELLO);
  equal((await client.answer()).status, 200);
  client.write(request('GET', '/hello', '', ['x-turnout-timeout: 0.2']));
  deepEqual((await client.answer()).get('x-turnout-error'), 'request_timeout');
  equal(await depth(router, 'rate'), 0);
  equal(engine.requests.length, 1);
});

test('all workers removed: waiting requests get an error at once', async (t) => {
  const { router, wait, running } = await startBusyScene(t);
  const clients = [await wait('/a'), await wait('/b')];
  router.fleet.remove(router.fleet.workers[0]!);
  for (const client of clients) {
    const got = await client.answer();
    deepEqual([got.status, got.get('x-turnout-error')], [503, 'no_available_workers']);
    match(got.get('retry-after')!, /^[1-9]\d*$/);
  }
  equal((await send(t, router.url, HELLO)).status, 503);
  running.answer('1');
  await untilIdle(router);
});

test('the router stops: waiting requests get an error and are not sent to an engine', async (t) => {
  const { router, wait, engine } = await startBusyScene(t);
  const clients = [await wait('/a'), await wait('/b')];
  const closed = router.close();
  for (const client of clients) equal((await client.answer()).get('x-turnout-error'), 'shutting_down');
  await closed;
  equal(engine.requests.length, 1);
});

test('the router’s own endpoints answer while the queue is full', async (t) => {
  const { router } = await startBusyScene(t, { queueSize: 0 });
  for (const path of ['/health', '/liveness', '/workers', '/get_loads', '/metrics']) {
    equal((await send(t, router.url, request('GET', path))).status, 200);
  }
});

test(
  '--rate-limit-tokens-per-second: the first second’s worth at once, the rest as it comes, all served',
  undisturbed(500, async (t) => {
    const { engine, router } = await startScene(t, { rateLimitTokensPerSecond: 20, queueSize: 1_000 });
    engine.onRequest = (asked) => asked.answer('1');
    const clients = await Promise.all(Array.from({ length: 30 }, () => connectClient(t, router.url)));
    const startMs = performance.now();
    for (const client of clients) client.write(HELLO);
    const answers = await Promise.all(clients.map((client) => client.answer()));
    ok(performance.now() - startMs > 400, 'ten of them had to wait for half a second');
    deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
    const queued = await metric(router, 'turnout_requests_queued_total{reason="rate"}');
    ok(queued > 0 && queued <= 10, String(queued));
  }),
);

test('--rate-limit-burst: so many at once, whatever the rate', async (t) => {
  const options = { rateLimitTokensPerSecond: 0.1, rateLimitBurst: 5, queueSize: 0 };
  const { engine, router } = await startScene(t, options);
  engine.onRequest = (asked) => asked.answer('1');
  const answers = await Promise.all(Array.from({ length: 8 }, () => send(t, router.url, HELLO)));
  deepEqual(
    answers.map(({ status }) => status).toSorted((a, b) => a - b),
    [200, 200, 200, 200, 200, 429, 429, 429],
  );
});

test('metadata of an engine is asked for past all limits', async (t) => {
  const { ask, router, engine } = await startScene(t, {
    maxConcurrentRequests: 1,
    rateLimitTokensPerSecond: 0.1,
    workerMaxInflight: 1,
    queueSize: 0,
  });
  await ask(HELLO);
  engine.onRequest = (asked) => asked.answer('1');
  equal((await send(t, router.url, HELLO)).status, 429);
  for (const target of [
    '/v1/models',
    '/v1/models/m',
    '/model_info',
    '/get_model_info',
    '/version',
    '/v1/loads?include=core',
  ])
    equal((await send(t, router.url, request('GET', target))).status, 200, target);
  equal((await send(t, router.url, request('POST', '/v1/models'))).status, 429);
});

test('over the rate with the queue full: 429 that says when', async (t) => {
  const { engine, router } = await startScene(t, { rateLimitTokensPerSecond: 0.1, queueSize: 1 });
  engine.onRequest = (asked) => asked.answer('1');
  const startMs = performance.now();
  equal((await send(t, router.url, HELLO)).status, 200);
  const waits = await connectClient(t, router.url);
  waits.write(HELLO);
  await until('it waits', async () => (await depth(router, 'rate')) === 1);
  const refused = await send(t, router.url, HELLO);
  equal(refused.status, 429);
  const secs = Number(refused.get('retry-after'));
  const pastSecs = (performance.now() - startMs) / 1000;
  ok(secs <= 20 && secs >= 20 - pastSecs, `two of 0.1 a second, ${pastSecs} s ago: ${secs}`);
});

test('without limits nothing waits: a thousand at once are all at the engine', async (t) => {
  const { engine, router } = await startScene(t);
  const clients = await Promise.all(Array.from({ length: 20 }, () => connectClient(t, router.url)));
  const wave = Array.from({ length: 50 }, () => Promise.all(clients.map(() => connectClient(t, router.url))));
  const all = [...clients, ...(await Promise.all(wave)).flat()];
  for (const client of all) client.write(HELLO);
  await until('all are there', () => engine.requests.length === all.length);
  equal(await metric(router, 'turnout_queue_wait_seconds_count'), 0);
  for (const asked of engine.requests) asked.answer('1');
  for (const client of all) equal((await client.answer()).status, 200);
});
