import { equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { HELLO, startScene, startTestRouter } from '../harness/router.ts';
import { connectClient } from '../harness/client.ts';

test('HEAD: the length is sent without a body; the connections are kept', async (t) => {
  const { exchange, engine } = await startScene(t);
  const got = await exchange(request('HEAD', '/h'), 'HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n');
  equal(got.get('content-length'), '1234');
  equal((await exchange(HELLO, answer(200, 'next'))).text, 'next');
  equal(engine.connections.length, 1);
});

test('HEAD of a chunked resource ends with its head', async (t) => {
  const { exchange, client } = await startScene(t);
  await exchange(request('HEAD', '/h'), 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n');
  equal((await exchange(HELLO, answer(200, 'next'))).text, 'next');
  equal(client.unread, '');
});

test('HEAD: an engine that sends a body all the same is cut off there', async (t) => {
  const { exchange, engine, client } = await startScene(t);
  await exchange(request('HEAD', '/h'), answer(200, 'forbidden body'));
  equal((await exchange(HELLO, answer(200, 'next'))).text, 'next');
  equal(engine.connections.length, 2);
  equal(client.unread, '');
});

test('204 and 304 end with their head, whatever framing they claim', async (t) => {
  const { exchange, engine } = await startScene(t);
  for (const [status, fields] of [
    ['204 No Content', ''],
    ['304 Not Modified', 'content-length: 77\r\netag: "a"\r\n'],
    ['204 No Content', 'transfer-encoding: chunked\r\n'],
    ['304 Not Modified', ''],
  ]) {
    equal((await exchange(HELLO, `HTTP/1.1 ${status}\r\n${fields}\r\n`)).payload.length, 0);
    equal((await exchange(HELLO, answer(200, 'next'))).text, 'next');
  }
  equal(engine.connections.length, 1);
});

test('204 with a body: the client never sees it, and the connection is not used again', async (t) => {
  const { exchange, engine } = await startScene(t);
  equal((await exchange(HELLO, 'HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\n')).status, 204);
  equal((await exchange(HELLO, answer(200, 'next'))).text, 'next');
  equal(engine.connections.length, 2);
});

test('HEAD: the router\u2019s own refusal has no body either', async (t) => {
  const router = await startTestRouter(t);
  const client = await connectClient(t, router.url);
  client.write(request('HEAD', '/h') + request('GET', '/liveness'));
  const got = await client.answer('HEAD');
  equal(got.status, 503);
  equal((await client.answer()).text, 'OK');
});

test('HEAD of the router\u2019s own endpoints', async (t) => {
  const router = await startTestRouter(t);
  const client = await connectClient(t, router.url);
  client.write(request('HEAD', '/liveness') + request('GET', '/liveness'));
  equal((await client.answer('HEAD')).status, 200);
  equal((await client.answer()).text, 'OK');
});

test('HEAD of an endpoint of the router: no other length than that of GET', async (t) => {
  const { url } = await startTestRouter(t);
  const client = await connectClient(t, url);
  for (const path of ['/health', '/workers', '/nothing', '/metrics']) {
    client.write(request('HEAD', path) + request('GET', path));
    const head = await client.answer('HEAD');
    const whole = await client.answer();
    equal(head.status, whole.status);
    ok(
      [undefined, whole.get('content-length')].includes(head.get('content-length')),
      `${path}: ${head.get('content-length')}`,
    );
  }
});
