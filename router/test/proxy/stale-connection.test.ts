import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { type EngineRequest, answer } from '../harness/engine.ts';
import { HELLO, type Scene, startScene, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

/** The engine answers the first request of a connection and breaks the connection at the second. */
async function staleScene(t: Parameters<typeof startScene>[0], options = {}): Promise<Scene> {
  const scene = await startScene(t, options);
  scene.engine.onRequest = (asked: EngineRequest) => {
    const { connection } = asked;
    const text = `connection ${scene.engine.connections.length}`;
    if (connection.requests.length > 1) connection.reset();
    else void asked.payload().then(() => connection.write(answer(200, text)));
  };
  scene.client.write(HELLO);
  equal((await scene.client.answer()).text, 'connection 1');
  return scene;
}

test('a kept-alive connection that breaks under a request: sent once more on a fresh one, the client sees 200', async (t) => {
  const { client, engine, router } = await staleScene(t);
  const body = '{"n":1}';
  client.write(request('POST', '/generate', body));
  const got = await client.answer();
  equal(got.status, 200);
  equal(got.text, 'connection 2');
  equal((await engine.requests[2]!.payload()).toString(), body);
  equal(engine.requests.length, 3);
  await untilIdle(router);
});

test('it is sent once more even where retries are off: the engine has not read it', async (t) => {
  const { client } = await staleScene(t, { disableRetries: true });
  client.write(HELLO);
  equal((await client.answer()).status, 200);
});

test('a large body is sent again whole', async (t) => {
  const { client, engine } = await staleScene(t);
  const body = 'b'.repeat(1_500_000);
  client.write(request('POST', '/generate', body));
  equal((await client.answer()).status, 200);
  equal((await engine.requests[2]!.payload()).toString(), body);
});

test('a body that was not kept (--retry-buffer-bytes) is never sent again in part', async (t) => {
  const { client, engine, ask } = await startScene(t, { retryBufferBytes: 0 });
  engine.onRequest = ({ connection }) => {
    if (connection.requests.length === 1) connection.write(answer(200, ''));
  };
  client.write(HELLO);
  await client.answer();
  const whole = request('POST', '/generate', 'b'.repeat(600_000));
  await engine.next();
  const asked = await ask(whole.slice(0, 300_000));
  client.write(whole.slice(300_000, 500_000));
  await until('a part of the body is at the engine', () => asked.connection.bytesReceived > 400_000);
  asked.connection.reset();
  client.write(whole.slice(500_000));
  const got = await client.answer();
  equal(got.status, 502);
  equal(got.get('x-turnout-error'), 'upstream_reset');
  equal(engine.requests.length, 2);
});

test('a fresh connection that breaks is no stale one: not sent to the same engine again', async (t) => {
  const engineOptions = { onRequest: ({ connection }: EngineRequest) => connection.reset() };
  const { engine, client } = await startScene(t, { engine: engineOptions, disableRetries: true });
  client.write(HELLO);
  const got = await client.answer();
  equal(got.status, 502);
  equal(got.get('x-turnout-error'), 'upstream_reset');
  equal(engine.requests.length, 1);
});

test('a kept-alive connection that breaks after the first byte of an answer is no stale one', async (t) => {
  const { engine, client } = await startScene(t, { disableRetries: true });
  engine.onRequest = ({ connection }) => {
    if (connection.requests.length === 1) connection.write(answer(200, ''));
    else connection.socket.end('HTTP/1.1 200');
  };
  client.write(HELLO);
  await client.answer();
  client.write(HELLO);
  equal((await client.answer()).status, 502);
  equal(engine.requests.length, 2);
});
