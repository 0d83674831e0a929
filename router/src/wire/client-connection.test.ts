import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type Socket, connect, createServer } from 'node:net';
import { type TestContext, test } from 'node:test';
import { until } from '../../test/harness/within.ts';
import { ClientConnection, type ConnectionContext, type RequestListener } from './client-connection.ts';
import { RetryBudget } from './request-body.ts';
import type { RequestHead } from './request-head.ts';
import { ownHead, ownStreamHead } from './response-head.ts';

/** A connection that has a request, and its client, who does not read. */
async function asked(
  t: TestContext,
  clock: { nowMs: number },
  field = 'connection: close\r\n',
): Promise<{ connection: ClientConnection; client: Socket }> {
  const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = connect({ port: (server.address() as { port: number }).port, host: '127.0.0.1', allowHalfOpen: true });
  client.pause();
  const [tcp] = (await once(server, 'connection')) as [Socket];
  const { promise, resolve } = Promise.withResolvers<RequestHead>();
  const owner: ConnectionContext & RequestListener = {
    clock,
    retryBudget: new RetryBudget(1_000),
    isDraining: false,
    options: {
      timeouts: { headMs: 1_000, bodyIdleMs: 1_000, keepAliveMs: 1_000, writeMs: 60_000 },
      maxPayloadBytes: 100,
      allowsHalfClose: false,
      isAdminPort: false,
    },
    onRequest: resolve,
    onRefused() {},
  };
  const connection = new ClientConnection(tcp, tcp, owner, owner);
  client.write(`GET / HTTP/1.1\r\nhost: h\r\n${field}\r\n`);
  await promise;
  t.after(() => {
    tcp.destroy();
    client.destroy();
    server.close();
  });
  return { connection, client };
}

test('the last answer of a connection goes out to its last byte, however slowly the client takes it', async (t) => {
  const clock = { nowMs: 0 };
  const { connection, client } = await asked(t, clock);
  const part = Buffer.alloc(65_536, 'x');
  const parts = 400;
  connection.head(ownHead(200, 'OK', '', part.length * parts));
  for (let i = 0; i < parts; i++) connection.body(part, 0, part.length);
  connection.end();
  assert.ok(connection.socket.writableLength > 0, 'the system did not take all of it');
  clock.nowMs = 10_000;
  assert.ok(connection.deadlineMs > clock.nowMs);

  let bytes = 0;
  client.on('data', (read: Buffer) => (bytes += read.length));
  client.resume();
  await once(client, 'end');
  assert.ok(bytes > part.length * parts);
  // From here the client may linger, but not for ever.
  assert.ok(connection.deadlineMs > clock.nowMs && connection.deadlineMs < clock.nowMs + 10_000);
  connection.expire();
  assert.ok(connection.socket.destroyed);
});

test('a client that takes nothing of its last answer is given up', async (t) => {
  const { connection } = await asked(t, { nowMs: 0 });
  connection.head(ownHead(200, 'OK', '', 60_000_000));
  for (let i = 0; i < 900; i++) connection.body(Buffer.alloc(65_536), 0, 65_536);
  connection.end();
  assert.equal(connection.socket.timeout, 60_000);
});

test('a client that takes nothing of a truncated answer is given up too', async (t) => {
  const { connection } = await asked(t, { nowMs: 0 });
  connection.head(ownStreamHead(200, 'OK', '', true));
  for (let i = 0; i < 900; i++) connection.body(Buffer.alloc(65_536), 0, 65_536);
  connection.cut('the engine broke off', 'data: {"error":1}\n\n');
  assert.ok(connection.socket.writableLength > 0, 'the system did not take all of it');
  assert.equal(connection.socket.timeout, 60_000);
});

test('a client that was slow may keep its connection for the next request', async (t) => {
  const { connection, client } = await asked(t, { nowMs: 0 }, '');
  const part = Buffer.alloc(30_000_000, 'x');
  connection.head(ownHead(200, 'OK', '', part.length + 1));
  connection.body(part, 0, part.length);
  assert.equal(connection.flush(), false);
  assert.equal(connection.socket.timeout, 60_000);
  // A source that reads on although the sink is full.
  connection.body(part, 0, 1);
  connection.end();
  let bytes = 0;
  client.on('data', (read: Buffer) => (bytes += read.length));
  client.resume();
  await until('it has all', () => bytes > part.length);
  await until('it may be silent now', () => connection.socket.timeout === 0);
  assert.equal(connection.socket.destroyed, false);
});

test('a client that takes nothing is given up although its engine is silent since', async (t) => {
  const { connection } = await asked(t, { nowMs: 0 });
  connection.head(ownStreamHead(200, 'OK', '', true));
  while (!connection.isBehind) {
    connection.body(Buffer.alloc(8_192), 0, 8_192);
    assert.equal(connection.flush(), true, 'a message waits for the end of the turn');
    await new Promise((resolve) => void setImmediate(resolve));
  }
  assert.equal(connection.socket.timeout, 60_000);
});

const CHUNK = '5\r\nhello\r\n';
for (const [how, close, last] of [
  ['is truncated', (connection: ClientConnection) => connection.cut('', ''), CHUNK],
  [
    'is truncated with a last event',
    (connection: ClientConnection) => {
      connection.body(Buffer.from(CHUNK), 0, CHUNK.length);
      connection.cut('', 'bye');
    },
    `${CHUNK}${CHUNK}3\r\nbye\r\n`,
  ],
  ['is closed', (connection: ClientConnection) => connection.close(), CHUNK],
  ['is closed soon', (connection: ClientConnection) => connection.closeSoon(), CHUNK],
] as const) {
  test(`what a connection sent in the turn in which it ${how} arrives`, async (t) => {
    const { connection, client } = await asked(t, { nowMs: 0 }, '');
    connection.head(ownStreamHead(200, 'OK', '', true));
    connection.body(Buffer.from(CHUNK), 0, CHUNK.length);
    connection.flush();
    close(connection);
    let text = '';
    client.on('data', (read: Buffer) => (text += read.toString('latin1'))).resume();
    await once(client, 'end');
    assert.ok(text.startsWith('HTTP/1.1 200 OK') && text.endsWith(`\r\n\r\n${last}`), text);
  });
}
