import { deepEqual, equal } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { connectClient, request } from '../harness/client.ts';
import { type Engine, type EngineRequest, answer, startEngine } from '../harness/engine.ts';
import { stoppedClock } from '../harness/fake-time.ts';
import { HELLO, type Scene, startScene, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

/** The engine answers the first request of a connection and breaks the connection at the second. */
async function staleScene(t: TestContext, options = {}): Promise<Scene> {
  stoppedClock(t);
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

/** Longer than the end of an idle connection takes to be seen. */
const LATE_MS = 1_000;
const GENERATE = request('POST', '/generate', '{"n":1}');
const UPLOAD = request('POST', '/v1/files', '{"n":1}');

/** Two engines, each with a reused connection. At the next request, which the first one gets, that one does something. */
async function twoEngines(t: TestContext, atNext: (asked: EngineRequest, engine: Engine) => void) {
  const clock = stoppedClock(t);
  const answers = (asked: EngineRequest): void => void asked.whole.then(() => asked.answer('"well"'));
  const engines = [await startEngine(t), await startEngine(t)] as const;
  const [first] = engines;
  for (const engine of engines) engine.onRequest = answers;
  const workerUrls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, { workerUrls, policy: 'round_robin' });
  const client = await connectClient(t, router.url);
  const send = async (bytes: string) => {
    client.write(bytes);
    const { status, text } = await client.answer();
    return status === 200 ? text : status;
  };
  for (const _ of engines) equal(await send(HELLO), '"well"');
  first.onRequest = (asked) => void asked.whole.then(() => atNext(asked, first));
  /** Requests after the first one of each engine. */
  const hits = (): number[] => engines.map(({ requests }) => requests.length - 1);
  return { clock, send, hits, router };
}

for (const disableRetries of [false, true]) {
  test(`an engine that worked on a request of a reused connection and died has read it: no second try (${disableRetries ? 'no retries' : 'retries'})`, async (t) => {
    const clock = stoppedClock(t);
    const { client, engine } = await startScene(t, { disableRetries });
    engine.onRequest = (asked) =>
      void asked.whole.then(() => {
        if (engine.requests.length === 1) return asked.answer('"well"');
        clock.pass(LATE_MS);
        asked.connection.reset();
      });
    client.write(HELLO);
    equal((await client.answer()).status, 200);
    client.write(UPLOAD);
    const got = await client.answer();
    deepEqual([got.status, got.get('x-turnout-error')], [502, 'upstream_reset']);
    equal(engine.requests.length, 2);
  });
}

test('an engine that works on generations and breaks their connections: one other worker', async (t) => {
  const scene = await twoEngines(t, ({ connection }) => {
    scene.clock.pass(LATE_MS);
    connection.reset();
  });
  equal(await scene.send(GENERATE), '"well"');
  deepEqual(scene.hits(), [1, 1]);
  await untilIdle(scene.router);
});

test('an engine that breaks the connection of a generation at once, the fresh one too: one other worker', async (t) => {
  const scene = await twoEngines(t, ({ connection }) => connection.reset());
  equal(await scene.send(GENERATE), '"well"');
  deepEqual(scene.hits(), [2, 1]);
  await untilIdle(scene.router);
});

test('an engine that dies with a reused connection may have read what changes something: no other worker gets it', async (t) => {
  const scene = await twoEngines(t, (_, engine) => engine.kill());
  equal(await scene.send(UPLOAD), 502);
  deepEqual(scene.hits(), [1, 0]);
  await untilIdle(scene.router);
});

for (const [what, bytes, got, hits] of [
  ['a generation goes to one other worker', GENERATE, '"well"', [1, 1]],
  ['what changes something is not sent again', UPLOAD, 502, [1, 0]],
] as const) {
  test(`an engine that sent 102 has read the request, and nothing of its answer has come: ${what}`, async (t) => {
    const scene = await twoEngines(t, ({ connection }) => connection.socket.end('HTTP/1.1 102 Processing\r\n\r\n'));
    equal(await scene.send(bytes), got);
    deepEqual(scene.hits(), hits);
    await untilIdle(scene.router);
  });
}
