import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { HELLO, startScene } from '../harness/router.ts';

const named = (fields: readonly (readonly [string, string])[]): string[] => fields.map(([name]) => name.toLowerCase());

test('fields for one hop stay on their hop: request', async (t) => {
  const { ask } = await startScene(t);
  const asked = await ask(
    'GET / HTTP/1.1\r\nhost: h\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\nTrailer: x-t\r\n' +
      'Proxy-Connection: keep-alive\r\nx-kept: 1\r\n\r\n',
  );
  deepEqual(named(asked.head.fields), ['host', 'x-kept', 'x-request-id']);
});

test('fields for one hop stay on their hop: answer', async (t) => {
  const { exchange } = await startScene(t);
  const got = await exchange(
    HELLO,
    'HTTP/1.1 200 OK\r\nconnection: keep-alive\r\nkeep-alive: timeout=5\r\nproxy-connection: x\r\ntrailer: x-t\r\n' +
      'te: x\r\nupgrade: h2c\r\nx-kept: 1\r\ncontent-length: 0\r\n\r\n',
  );
  deepEqual(named(got.fields), ['x-kept', 'content-length', 'x-request-id']);
});

test('fields that Connection names go no further, in both directions', async (t) => {
  const { exchange, engine } = await startScene(t);
  const got = await exchange(
    'GET / HTTP/1.1\r\nX-Hop: 1\r\nhost: h\r\nconnection: x-hop, close-not, X-Other\r\nx-kept: 1\r\nx-other: a\r\nx-other: b\r\n\r\n',
    'HTTP/1.1 200 OK\r\nX-Mine: 1\r\nconnection: x-mine\r\nX-Yours: 2\r\ncontent-length: 0\r\n\r\n',
  );
  deepEqual(named(engine.requests[0]!.head.fields), ['host', 'x-kept', 'x-request-id']);
  deepEqual(named(got.fields), ['x-yours', 'content-length', 'x-request-id']);
});

test("host becomes the worker's; the client's goes no further", async (t) => {
  const { ask, engine } = await startScene(t);
  const asked = await ask('GET / HTTP/1.1\r\nHost: evil.example:99\r\n\r\n');
  equal(asked.head.get('host'), new URL(engine.url).host);
});

test('a worker with a base path gets it in front of every target', async (t) => {
  const { engine, router, ask } = await startScene(t);
  router.fleet.remove(router.fleet.workers[0]!);
  router.fleet.add(`${engine.url}/base/`);
  equal((await ask('GET /v1/models?x HTTP/1.1\r\nhost: h\r\n\r\n')).target, '/base/v1/models?x');
});

test('connection: close from the engine ends its connection, not the client\u2019s', async (t) => {
  const { exchange, engine } = await startScene(t);
  await exchange(HELLO, 'HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n');
  equal(await engine.connections[0]!.untilEnded(), 'end');
  const got = await exchange(HELLO, 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n');
  equal(got.get('connection'), undefined);
  equal(engine.connections.length, 2);
});

test('connection: close from the client ends its connection, not the engine\u2019s', async (t) => {
  const { exchange, client, engine } = await startScene(t);
  const got = await exchange(
    'GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n',
    'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok',
  );
  equal(got.get('connection'), 'close');
  equal(await client.untilEnded(), 'end');
  equal(engine.connections[0]!.isClosed, false);
});

test('an offer of h2c is passed over: the request is served in HTTP/1.1', async (t) => {
  const { exchange, engine } = await startScene(t);
  const got = await exchange(
    'GET / HTTP/1.1\r\nhost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n\r\n',
    'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n',
  );
  equal(got.status, 200);
  deepEqual(named(engine.requests[0]!.head.fields), ['host', 'x-request-id']);
});
