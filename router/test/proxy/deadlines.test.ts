import { deepEqual, equal, match } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { connectClient, request } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene, untilIdle } from '../harness/router.ts';
import { undisturbed } from '../harness/undisturbed.ts';
import { until } from '../harness/within.ts';
import type { RequestListener } from '../../src/wire/client-connection.ts';
import { Listener } from '../../src/wire/listener.ts';
import { RetryBudget } from '../../src/wire/request-body.ts';
import { RouterError } from '../../src/kit/errors.ts';
import { sendError } from '../../src/forward/errors.ts';

test('--request-timeout-secs before an answer: 504, the engine is stopped, no other one is tried', async (t) => {
  const other = await startEngine(t);
  const { ask, client, router } = await startScene(t, { requestTimeoutSecs: 0.3 });
  router.fleet.add(other.url);
  const asked = await ask(request('POST', '/v1/completions', '{}'));
  const got = await client.answer();
  deepEqual([got.status, got.get('x-turnout-error')], [504, 'request_timeout']);
  equal((JSON.parse(got.text) as { error: { code: string } }).error.code, 'request_timeout');
  await asked.connection.untilEnded();
  equal(other.requests.length, 0);
  await untilIdle(router);
});

test(
  '--request-timeout-secs in the middle of a stream: cut, without a last chunk',
  undisturbed(600, async (t) => {
    const { ask, client, router } = await startScene(t, { requestTimeoutSecs: 0.6 });
    const asked = await ask(HELLO);
    asked.beginStream();
    match(await client.read('\r\n\r\n'), /^HTTP\/1\.1 200 /);
    asked.connection.write(chunk('data: 1\n\n'));
    await client.read(chunk('data: 1\n\n'));
    await client.untilEnded();
    equal(client.hasLastChunk, false);
    await asked.connection.untilEnded();
    await untilIdle(router);
  }),
);

test('--request-timeout-secs does not touch what ends in time', async (t) => {
  const { exchange, router } = await startScene(t, { requestTimeoutSecs: 30 });
  equal((await exchange(HELLO, answer(200, 'ok'))).status, 200);
  await untilIdle(router);
});

/** A listener whose clock the test moves. Requests are taken and never answered. */
async function listenerAt(t: TestContext, timeouts: Listener['options']['timeouts']) {
  const clock = { nowMs: 1_000 };
  const requests: RequestListener = {
    onRequest: (head, body, connection) => {
      if (body.isComplete) sendError(connection, new RouterError('internal_error', head.target), 'plain');
      else {
        connection.watcher = {
          ended: (_, result) => (result.kind === 'refused' ? refuse(result.error, connection) : undefined),
        };
      }
    },
    onRefused: (refusal, _target, connection) => refuse(refusal, connection),
  };
  const listener = new Listener(
    clock,
    new RetryBudget(1_000_000),
    {
      host: '127.0.0.1',
      port: 0,
      isAdminPort: false,
      reusePort: false,
      maxPayloadBytes: 1_000_000,
      allowsHalfClose: false,
      maxConnections: 0,
      maxConnectionsPerClient: 0,
      timeouts,
    },
    null,
  );
  const refuse = ({ status, message }: { status: number; message: string }, to: Parameters<typeof sendError>[0]) =>
    sendError(to, new RouterError('bad_request', message, { status }), 'plain');
  const client = await connectClient(t, `http://127.0.0.1:${await listener.listen(requests)}`);
  t.after(() => listener.close());
  await until('the connection is accepted', () => listener.connections.size === 1);
  const pass = (ms: number): void => {
    clock.nowMs += ms;
    listener.sweep();
  };
  return { client, listener, pass };
}
const TIMEOUTS = { headMs: 10_000, bodyIdleMs: 60_000, keepAliveMs: 3_600_000, writeMs: 600_000 };

test('a head that does not come in time: 408, however steadily it drips', async (t) => {
  const { client, pass, listener } = await listenerAt(t, TIMEOUTS);
  const [connection] = listener.connections;
  for (const part of ['GET / HTTP/1.1\r\n', 'host: h\r\n', 'x: y\r\n']) {
    client.write(part);
    const before = connection!.socket.bytesRead;
    await until('the part is read', () => connection!.socket.bytesRead > before || connection!.socket.bytesRead >= 31);
    pass(3_000);
  }
  equal(client.received.length, 0);
  pass(2_000);
  const got = await client.answer();
  deepEqual([got.status, got.get('connection')], [408, 'close']);
  equal(await client.untilEnded(), 'end');
});

test('a connection that never sends a byte is closed without a word', async (t) => {
  const { client, pass } = await listenerAt(t, TIMEOUTS);
  pass(10_001);
  equal(await client.untilEnded(), 'end');
  equal(client.received.length, 0);
});

test('a body that stops coming: 408', async (t) => {
  const { client, pass, listener } = await listenerAt(t, TIMEOUTS);
  client.write(request('POST', '/', 'hello').slice(0, -2));
  await until('the head is read', () => !([...listener.connections][0]?.isIdle ?? true));
  pass(59_000);
  equal(client.received.length, 0);
  pass(1_001);
  equal((await client.answer()).status, 408);
});

test('a connection that waits for its next request is closed after the keep-alive time', async (t) => {
  const { client, pass } = await listenerAt(t, TIMEOUTS);
  client.write(HELLO);
  equal((await client.answer()).status, 500);
  pass(3_599_000);
  client.write(HELLO);
  equal((await client.answer()).status, 500);
  pass(3_600_001);
  equal(await client.untilEnded(), 'end');
  equal(client.unread, '');
});
