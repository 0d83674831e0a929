import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { connectClient, request } from '../../test/harness/client.ts';
import { chunk } from '../../test/harness/message.ts';
import { until } from '../../test/harness/within.ts';
import { readIntoBuffers } from './socket-memory.ts';
import { Listener } from './listener.ts';
import type { RequestListener } from './client-connection.ts';
import { RetryBudget } from './request-body.ts';
import { ownHead } from './response-head.ts';

const sha = (bytes: Buffer | string): string => createHash('sha1').update(bytes).digest('hex');

/** Answers each request with its target and the hash of its body. */
async function listen(t: TestContext, takeOver: typeof readIntoBuffers) {
  const accepted: Socket[] = [];
  const requests: RequestListener = {
    onRequest: (head, body, connection) =>
      body.whenJoined((bytes) => {
        const text = Buffer.from(`${head.target} ${sha(bytes)}`);
        connection.head(ownHead(200, 'OK', '', text.length));
        connection.body(text, 0, text.length);
        connection.flush();
        connection.end();
      }),
    onRefused: ({ message }) => assert.fail(message),
  };
  const listener = new Listener(
    { nowMs: 0 },
    new RetryBudget(1e9),
    {
      host: '127.0.0.1',
      port: 0,
      isAdminPort: false,
      reusePort: false,
      maxPayloadBytes: 10_000_000,
      allowsHalfClose: true,
      maxConnections: 0,
      maxConnectionsPerClient: 0,
      timeouts: { headMs: 60_000, bodyIdleMs: 60_000, keepAliveMs: 60_000, writeMs: 60_000 },
    },
    null,
    (socket, first, readerOf) => {
      accepted.push(socket);
      return takeOver(socket, first, readerOf);
    },
  );
  const client = await connectClient(t, `http://127.0.0.1:${await listener.listen(requests)}`);
  t.after(() => listener.close());
  await until('the connection is accepted', () => listener.connections.size === 1);
  return { client, listener, accepted: accepted[0]! };
}

test('this Node.js lets a socket be read into buffers of ours, once it is accepted', async (t) => {
  const { listener, accepted } = await listen(t, readIntoBuffers);
  const [{ socket } = { socket: accepted }] = listener.connections;
  assert.notEqual(socket, accepted);
  assert.ok(accepted.destroyed, 'the first socket is gone');
  assert.deepEqual([socket.destroyed, socket.remoteAddress], [false, '127.0.0.1']);
});

test('where a Node.js does not, the socket stays as it is', async (t) => {
  const { listener, accepted } = await listen(t, (socket, first, readerOf) => {
    // As a Node.js that holds its sockets in another way.
    const other = new Proxy(socket, { get: (of, name) => (name === '_handle' ? undefined : Reflect.get(of, name)) });
    return readIntoBuffers(other, first, readerOf);
  });
  const [{ socket } = { socket: null }] = listener.connections;
  assert.equal(socket, accepted);
  assert.equal(accepted.destroyed, false);
});

for (const [title, takeOver] of [
  ['read into buffers of ours', readIntoBuffers],
  ["read by Node's stream", () => false],
] as const) {
  test(`${title}: requests of every kind arrive whole and in order`, async (t) => {
    const { client, listener } = await listen(t, takeOver);
    const check = async (target: string, body: string): Promise<void> => {
      const answer = await client.answer();
      assert.deepEqual([answer.status, answer.text], [200, `${target} ${sha(body)}`]);
    };
    // Pipelined, and in one read.
    client.write(request('GET', '/a') + request('POST', '/b', 'body') + request('GET', '/c'));
    await check('/a', '');
    await check('/b', 'body');
    await check('/c', '');
    // The head comes in two parts.
    const split = request('POST', '/split', 'x'.repeat(100));
    client.write(split.slice(0, 20));
    await new Promise((resolve) => setImmediate(resolve));
    client.write(split.slice(20));
    await check('/split', 'x'.repeat(100));
    for (const bytes of [20_000, 300_000, 3_000_000]) {
      const body = Array.from({ length: bytes / 10 }, (_, i) => `${i}`.padEnd(10)).join('');
      client.write(request('POST', `/${bytes}`, body) + request('GET', '/next'));
      await check(`/${bytes}`, body);
      await check('/next', '');
    }
    const parts = Array.from({ length: 500 }, (_, i) => `${i}`.padEnd(1 + i));
    client.write(`POST /chunked HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n`);
    client.write(`${parts.map(chunk).join('')}0\r\n\r\n`);
    await check('/chunked', parts.join(''));
    client.write(request('POST', '/last', 'l'));
    client.end();
    await check('/last', 'l');
    await client.untilEnded();
    await until('the connection is closed', () => listener.connections.size === 0);
  });

  test(`${title}: a reset by the client ends the connection`, async (t) => {
    const { client, listener } = await listen(t, takeOver);
    client.write('POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nabc');
    client.reset();
    await until('the connection is closed', () => listener.connections.size === 0);
  });
}
