import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request } from '../harness/client.ts';
import { STREAM_HEAD } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

for (const how of ['reset', 'destroy'] as const) {
  test(`a client that leaves (${how}) while it waits stops the engine`, async (t) => {
    const { client, ask, router } = await startScene(t);
    const asked = await ask(request('POST', '/generate', '{}'));
    equal(router.pipeline.inFlight.size, 1);
    if (how === 'reset') client.reset();
    else client.socket.destroy();
    await asked.connection.untilEnded();
    await untilIdle(router);
    await until('no connection is left', () => router.fleet.workers[0]!.pool.openCount === 0);
  });

  test(`a client that leaves (${how}) in the middle of a stream stops the engine`, async (t) => {
    const { client, ask, router } = await startScene(t);
    const asked = await ask(request('POST', '/generate', '{}'));
    asked.beginStream();
    asked.connection.write(chunk('data: 1\n\n'));
    await client.read('data: 1\n\n');
    if (how === 'reset') client.reset();
    else client.socket.destroy();
    await asked.connection.untilEnded();
    await untilIdle(router);
  });
}

test('a client that leaves in the middle of its upload stops the engine', async (t) => {
  const { client, ask, router } = await startScene(t);
  const asked = await ask(request('POST', '/generate', 'x'.repeat(90_000)).slice(0, 60_000));
  client.reset();
  await asked.connection.untilEnded();
  await untilIdle(router);
});

test('a client that leaves before its head is whole reaches no engine', async (t) => {
  const { client, engine, router } = await startScene(t);
  client.write('POST /generate HTTP/1.1\r\nhost: h\r\n');
  client.reset();
  const other = await connectClient(t, router.url);
  other.write(HELLO);
  (await engine.next()).answer('"ok"');
  equal((await other.answer()).text, '"ok"');
  equal(engine.connections.length, 1);
});

test('a client that disconnects between two requests affects no other', async (t) => {
  const { client, ask, router, engine } = await startScene(t);
  (await ask(HELLO)).answer('"ok"');
  await client.answer();
  client.reset();
  const other = await connectClient(t, router.url);
  other.write(HELLO);
  (await engine.next()).answer('"ok"');
  await other.answer();
  equal(engine.connections.length, 1);
});

test('300 clients that leave, at all moments: nothing is left over', async (t) => {
  const { engine, router } = await startScene(t);
  engine.onRequest = ({ connection, target }) => {
    if (target !== '/silent') connection.write(STREAM_HEAD + chunk('data: 1\n\n'));
  };
  for (let round = 0; round < 30; round++) {
    await Promise.all(
      Array.from({ length: 10 }, async (_, i) => {
        const client = await connectClient(t, router.url);
        client.write(request('POST', i % 3 === 0 ? '/silent' : '/stream', 'x'.repeat(i * 4_000)));
        if (i % 3 !== 0) await client.read(i % 3 === 1 ? '200 OK' : 'data: 1\n\n');
        if (i % 2 === 0) client.reset();
        else client.socket.destroy();
      }),
    );
  }
  await untilIdle(router);
  await Promise.all(engine.connections.map((connection) => connection.untilEnded()));
  await until('no connection is left', () => router.fleet.workers[0]!.pool.openCount === 0);
});
