import { deepEqual, equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene, startTestRouter, untilIdle } from '../harness/router.ts';

test('--max-concurrent-requests: one more gets 429 with retry-after, until a place is free', async (t) => {
  const { ask, client, router, engine } = await startScene(t, { maxConcurrentRequests: 1, queueSize: 0 });
  const asked = await ask(HELLO);
  asked.beginStream();
  await client.read('\r\n\r\n');
  const refused = await send(t, router.url, request('POST', '/v1/chat/completions', '{}'));
  deepEqual([refused.status, refused.get('x-turnout-error')], [429, 'too_many_requests']);
  match(refused.get('retry-after')!, /^[1-9]\d*$/);
  deepEqual((JSON.parse(refused.text) as { error: { code: string } }).error.code, 'too_many_requests');
  equal((await send(t, router.url, request('GET', '/liveness'))).status, 200);
  equal(engine.requests.length, 1);

  asked.connection.write(`${chunk('data: [DONE]\n\n')}0\r\n\r\n`);
  await client.read('0\r\n\r\n');
  client.write(HELLO);
  (await engine.next()).answer('"free again"');
  equal((await client.answer()).text, '"free again"');
});

test('a place is free again after every way an exchange can end', async (t) => {
  const { engine, router } = await startScene(t, { maxConcurrentRequests: 1, disableRetries: true });
  engine.onRequest = ({ connection, target }) => {
    if (target === '/reset') connection.reset();
    else if (target === '/bad') connection.write('not HTTP at all\r\n\r\n');
    else if (target === '/cut') connection.socket.end('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx');
    else if (target === '/ok') connection.write(answer(200, ''));
  };
  for (const target of ['/ok', '/reset', '/bad', '/cut', '/leave', '/ok']) {
    const client = await connectClient(t, router.url);
    client.write(request('GET', target));
    if (target === '/leave') {
      await engine.next().then(() => client.reset());
    } else if (target === '/cut') {
      await client.untilEnded();
      await engine.next();
    } else {
      await client.answer();
      await engine.next();
    }
    await untilIdle(router);
  }
  match(await (await fetch(router.metricsUrl)).text(), /turnout_requests_in_flight 0/);
});

test('a request that is refused while its body still comes: the client gets to read why', async (t) => {
  const { ask, router } = await startScene(t, { maxConcurrentRequests: 1, queueSize: 0 });
  await ask(HELLO);
  const other = await connectClient(t, router.url);
  other.write('POST /generate HTTP/1.1\r\nhost: h\r\ncontent-length: 4000000\r\n\r\n');
  for (let i = 0; i < 40; i++) other.write(Buffer.alloc(100_000));
  equal((await other.answer()).status, 429);
  equal(await other.untilEnded(), 'end');
});

test('a small request that is refused keeps its connection', async (t) => {
  const router = await startTestRouter(t);
  const client = await connectClient(t, router.url);
  for (let i = 0; i < 3; i++) {
    client.write(request('POST', '/generate', '{}'));
    const got = await client.answer();
    deepEqual([got.status, got.get('connection')], [503, undefined]);
  }
});

test('no workers: 503 with retry-after, in the dialect of the API that was called', async (t) => {
  const router = await startTestRouter(t);
  const said: Record<string, unknown> = {};
  for (const path of ['/v1/chat/completions', '/generate', '/anything']) {
    const got = await send(t, router.url, request('POST', path, '{}'));
    equal(got.status, 503);
    equal(got.get('x-turnout-error'), 'no_available_workers');
    equal(got.get('content-type'), 'application/json');
    match(got.get('retry-after')!, /^[1-9]\d*$/);
    said[path] = JSON.parse(got.text.replace(/"No available workers[^"]*"/, '"words"'));
  }
  deepEqual(said, {
    '/v1/chat/completions': {
      error: { message: 'words', type: 'server_error', param: null, code: 'no_available_workers' },
    },
    '/generate': { error: { message: 'words', type: 'server_error', code: 503, retryable: true } },
    '/anything': { error: 'words', code: 'no_available_workers' },
  });
});

test('a body that is too large is refused in the dialect of the API that was called, declared or not', async (t) => {
  const router = await startTestRouter(t, { maxPayloadSize: 10 });
  const head = 'POST /v1/completions HTTP/1.1\r\nhost: h\r\n';
  for (const rest of ['content-length: 11\r\n\r\n', `transfer-encoding: chunked\r\n\r\nb\r\n${'x'.repeat(11)}\r\n`]) {
    const got = await send(t, router.url, head + rest);
    equal(got.status, 413);
    equal((JSON.parse(got.text) as { error: { code: string } }).error.code, 'payload_too_large');
  }
});
