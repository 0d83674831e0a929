import { deepEqual, equal, match } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { type Engine, type EngineConnection, type EngineRequest, deadUrl, startEngine } from '../harness/engine.ts';
import { HELLO, startTestRouter, untilIdle } from '../harness/router.ts';

const well = (request: EngineRequest): void => void request.payload().then(() => request.answer('"well"'));

/** A router over a first engine that fails somehow, and a second one that is well. */
async function withSecond(t: TestContext, first: Engine | string, options = {}) {
  const second = await startEngine(t, { onRequest: well });
  const workerUrls = [typeof first === 'string' ? first : first.url, second.url];
  const router = await startTestRouter(t, { workerUrls, policy: 'round_robin', ...options });
  return { second, router };
}

test('connection refused: the next worker serves the request', async (t) => {
  const { second, router } = await withSecond(t, await deadUrl());
  const got = await send(t, router.url, request('POST', '/generate', '{"keep":"me"}'));
  equal(got.text, '"well"');
  equal((await second.requests[0]!.payload()).toString(), '{"keep":"me"}');
  await untilIdle(router);
});

test('accepted and closed at once, without a byte read: the next worker serves the request', async (t) => {
  const first = await startEngine(t, { onConnection: (connection: EngineConnection) => connection.socket.destroy() });
  const { router } = await withSecond(t, first);
  equal((await send(t, router.url, HELLO)).text, '"well"');
});

test('reset with the whole request read and no byte answered: the next worker serves it', async (t) => {
  const first = await startEngine(t, { onRequest: (r) => void r.payload().then(() => r.connection.reset()) });
  const { router, second } = await withSecond(t, first);
  const body = 'x'.repeat(400_000);
  equal((await send(t, router.url, request('POST', '/generate', body))).text, '"well"');
  equal((await second.requests[0]!.payload()).toString(), body);
  equal(first.requests.length, 1);
});

test('every path that changes no state is repeated so', async (t) => {
  const first = await startEngine(t, { onRequest: (r) => void r.payload().then(() => r.connection.reset()) });
  const { router } = await withSecond(t, first, { disableCircuitBreaker: true });
  for (const path of [
    '/skyrl/v1/generate',
    '/v1/chat/completions/render',
    '/v1/completions/render',
    '/v1/messages/render',
    '/v1/responses/render',
    '/cohere/v2/chat/render',
    '/v1/chat/completions/derender',
    '/v1/completions/derender',
  ]) {
    // Round robin: one of two begins at the first engine.
    for (let i = 0; i < 2; i++) equal((await send(t, router.url, request('POST', path, '{}'))).text, '"well"', path);
  }
});

test('a worker that dies in the middle of an upload: the next one gets the body from its first byte', async (t) => {
  const first = await startEngine(t);
  const { router, second } = await withSecond(t, first);
  const client = await connectClient(t, router.url);
  const whole = request('POST', '/generate', 'abc'.repeat(100_000));
  client.write(whole.slice(0, 150_000));
  (await first.next()).connection.reset();
  await second.next();
  client.write(whole.slice(150_000));
  equal((await client.answer()).text, '"well"');
  equal((await second.requests[0]!.payload()).toString(), 'abc'.repeat(100_000));
});

test('a chunked upload is sent again whole too', async (t) => {
  const first = await startEngine(t);
  const { router, second } = await withSecond(t, first);
  const client = await connectClient(t, router.url);
  client.write('POST /generate HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n');
  (await first.next()).connection.reset();
  await second.next();
  client.write('3\r\ndef\r\n0\r\n\r\n');
  equal((await client.answer()).text, '"well"');
  equal((await second.requests[0]!.payload()).toString(), 'abcdef');
});

test('--disable-retries: one try, then 502 for a broken connection and 503 for a refused one', async (t) => {
  const first = await startEngine(t, { onRequest: (r) => r.connection.reset() });
  const { router, second } = await withSecond(t, first, { disableRetries: true });
  const reset = await send(t, router.url, HELLO);
  deepEqual([reset.status, reset.get('x-turnout-error')], [502, 'upstream_reset']);
  equal(second.requests.length, 0);

  const other = await withSecond(t, await deadUrl(), { disableRetries: true });
  const refused = await send(t, other.router.url, HELLO);
  deepEqual([refused.status, refused.get('x-turnout-error')], [503, 'no_available_workers']);
});

test('work that may have run is sent to at most one other engine', async (t) => {
  const engines = await Promise.all(
    Array.from({ length: 4 }, () => startEngine(t, { onRequest: (r) => r.connection.reset() })),
  );
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url) });
  const got = await send(t, router.url, HELLO);
  equal(got.status, 502);
  const hits = engines.reduce((sum, engine) => sum + engine.requests.length, 0);
  equal(hits <= 2, true, `${hits} engines got the request`);
});

test('all workers down: 503 with retry-after at once, and 200 as soon as one is back', async (t) => {
  const urls = await Promise.all([deadUrl(), deadUrl(), deadUrl()]);
  const router = await startTestRouter(t, { workerUrls: urls });
  const got = await send(t, router.url, HELLO);
  equal(got.status, 503);
  match(got.get('retry-after')!, /^[1-9]\d*$/);
  equal(/127\.|ECONN/.test(got.text), false, 'addresses of engines stay inside');
  await untilIdle(router);
  await startEngine(t, { onRequest: well, port: Number(new URL(urls[1]).port) });
  equal((await send(t, router.url, HELLO)).status, 200);
});
