import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { metricOf } from '../chaos/scene.ts';
import type { Plugin } from '../../src/plugin.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { HELLO, startScene, untilIdle } from '../harness/router.ts';

const CHUNKED = 'POST /v1/completions HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n';

test('a body that is declared too large gets 413 before it is sent, and no engine gets it', async (t) => {
  const { client, engine } = await startScene(t, { maxPayloadSize: 1_000 });
  client.write('POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 1001\r\n\r\n');
  const got = await client.answer();
  deepEqual([got.status, got.get('x-turnout-error'), got.get('connection')], [413, 'payload_too_large', 'close']);
  equal(await client.untilEnded(), 'end');
  equal(engine.connections.length, 0);
});

test('it is counted by its code, as every refusal', async (t) => {
  const { router } = await startScene(t, { maxPayloadSize: 100 });
  for (let i = 0; i < 2; i++) equal((await send(t, router.url, request('POST', '/x', 'y'.repeat(300)))).status, 413);
  equal(await metricOf(router.metricsUrl, 'turnout_errors_total{code="payload_too_large"}'), 2);
  equal(await metricOf(router.metricsUrl, 'turnout_refused_heads_total'), 2);
});

test('a body of just the largest size passes', async (t) => {
  const { exchange } = await startScene(t, { maxPayloadSize: 1_000 });
  equal((await exchange(request('POST', '/', 'x'.repeat(1_000)), answer(200, 'ok'))).status, 200);
  equal((await exchange(`${CHUNKED}3e8\r\n${'x'.repeat(1_000)}\r\n0\r\n\r\n`, answer(200, 'ok'))).status, 200);
});

test('a chunked body that grows too large gets 413, and the engine\u2019s connection ends', async (t) => {
  const { client, ask, router } = await startScene(t, { maxPayloadSize: 1_000 });
  const asked = await ask(`${CHUNKED}3e8\r\n${'x'.repeat(1_000)}\r\n`);
  client.write('1\r\nx\r\n');
  const got = await client.answer();
  deepEqual([got.status, got.get('x-turnout-error')], [413, 'payload_too_large']);
  await asked.connection.untilEnded();
  await untilIdle(router);
});

const beginning = (path: string): string => `POST ${path} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n`;

test('a chunked body for the router itself is refused at the first byte beyond its maximum, also without a key', async (t) => {
  const own: Plugin = {
    name: 'own',
    maxBodyBytes: 1_000,
    routes({ forClients }) {
      forClients.post('/mine', (c) => c.text('ok'));
    },
  };
  const { router } = await startScene(t, { apiKey: ['data-key'], adminApiKey: ['admin-key'] }, { plugins: [own] });
  const data = (bytes: string): string => bytes.replace('host: h', 'host: h\r\nx-api-key: data-key');
  for (const [head, maxBytes] of [
    [beginning('/health'), 262_144],
    [beginning('/dashboard'), 262_144],
    [data(beginning('/finish_session')), 262_144],
    [data(beginning('/mine')), 1_000],
  ] as const) {
    const client = await connectClient(t, router.url);
    client.write(`${head}${maxBytes.toString(16)}\r\n${'x'.repeat(maxBytes)}\r\n`);
    client.write('1\r\nx\r\n');
    const got = await client.answer('POST');
    deepEqual([got.status, got.get('x-turnout-error')], [413, 'payload_too_large'], head);
    equal(await client.untilEnded(), 'end');
  }
  equal((await send(t, router.url, data(`${beginning('/mine')}3e8\r\n${'x'.repeat(1_000)}\r\n0\r\n\r\n`))).status, 200);
  equal(await metricOf(router.metricsUrl, 'turnout_retry_buffer_bytes'), 0);
});

test('probes and the page answer without waiting for a body', async (t) => {
  const { router } = await startScene(t, { apiKey: ['data-key'] });
  for (const path of ['/health', '/liveness', '/readiness', '/dashboard']) {
    const client = await connectClient(t, router.url);
    client.write(beginning(path).replace('POST', 'GET'));
    const got = await client.answer();
    // 501: the dashboard is not built.
    ok([200, 501].includes(got.status), path);
    equal(got.get('connection'), 'close');
    equal(await client.untilEnded(), 'end');
  }
});

test('a client that goes on sending gets to read the 413: it sees an end, not a reset', async (t) => {
  const { client } = await startScene(t, { maxPayloadSize: 1_000 });
  client.write(`POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 8000000\r\n\r\n`);
  for (let i = 0; i < 80; i++) client.write(Buffer.alloc(100_000));
  equal((await client.answer()).status, 413);
  equal(await client.untilEnded(), 'end');
});

test('an engine\u2019s own early 413 reaches a client that is still sending', async (t) => {
  const { client, ask, router } = await startScene(t);
  const asked = await ask('POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 8000000\r\n\r\nxxxx');
  asked.connection.write(answer(413, 'too much for me', ['x-engine: 1']));
  const got = await client.answer();
  deepEqual([got.status, got.text, got.get('x-engine'), got.get('connection')], [413, 'too much for me', '1', 'close']);
  for (let i = 0; i < 80; i++) client.write(Buffer.alloc(100_000));
  equal(await client.untilEnded(), 'end');
  await asked.connection.untilEnded();
  await untilIdle(router);
});

test('an engine that answers 400 in the middle of an upload and closes with bytes unread: the client sees 400', async (t) => {
  for (let round = 0; round < 20; round++) {
    const { client, ask } = await startScene(t, { disableRetries: true });
    const asked = await ask('POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 8000000\r\n\r\n');
    asked.connection.stall();
    const pump = (): void => {
      while (!client.socket.destroyed && client.socket.write(Buffer.alloc(65_536)));
    };
    client.socket.on('drain', pump);
    pump();
    // Without reading on: the system then answers what still comes with a reset.
    asked.connection.socket.end(answer(400, 'bad'), () => asked.connection.socket.destroy());
    equal((await client.answer()).status, 400);
    client.reset();
  }
});

test('after an early answer the connection is not used for another request', async (t) => {
  const { client, ask, engine } = await startScene(t);
  const asked = await ask('POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\n12345');
  asked.connection.write(answer(200, 'early'));
  equal((await client.answer()).get('connection'), 'close');
  client.write(`67890${HELLO}`);
  equal(await client.untilEnded(), 'end');
  equal(engine.requests.length, 1);
});
