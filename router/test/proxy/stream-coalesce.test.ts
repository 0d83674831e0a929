import { equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient } from '../harness/client.ts';
import { STREAM_HEAD, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const events = Array.from({ length: 60 }, (_, i) => chunk(`data: {"n":${i}}\n\n`));

test('--stream-coalesce-ms: the same bytes, in fewer parts', async (t) => {
  const { ask, client } = await startScene(t, { streamCoalesceMs: 40 });
  const asked = await ask(HELLO);
  asked.beginStream();
  let reads = 0;
  client.socket.on('data', () => reads++);
  for (const event of events) {
    asked.connection.write(event);
    await new Promise((resolve) => {
      setTimeout(resolve, 3);
    });
  }
  asked.connection.write('0\r\n\r\n');
  equal((await client.answer()).raw.toString(), `${events.join('')}0\r\n\r\n`);
  ok(reads < 30, `60 events came in ${reads} parts`);
});

test('--stream-coalesce-ms: the first events come at once', async (t) => {
  const { ask, client } = await startScene(t, { streamCoalesceMs: 10_000 });
  const asked = await ask(HELLO);
  asked.beginStream();
  await client.read('\r\n\r\n');
  asked.connection.write(events[0]!);
  await client.read(events[0]!);
});

test('--stream-coalesce-ms: many streams at once, each whole', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, { workerUrls: [engine.url], streamCoalesceMs: 20 });
  engine.onRequest = ({ connection }) =>
    void connection.writeSlowly(`${STREAM_HEAD}${events.slice(0, 9).join('')}0\r\n\r\n`);
  await Promise.all(
    Array.from({ length: 30 }, async () => {
      const client = await connectClient(t, router.url);
      client.write(HELLO);
      equal((await client.answer('GET', 20_000)).raw.toString(), `${events.slice(0, 9).join('')}0\r\n\r\n`);
    }),
  );
  await untilIdle(router);
});

test('--stream-coalesce-ms: an engine that dies while its stream is held back is noticed', async (t) => {
  const { ask, client } = await startScene(t, { streamCoalesceMs: 50 });
  const asked = await ask(HELLO);
  asked.beginStream();
  for (const event of events.slice(0, 6)) {
    asked.connection.write(event);
    await client.read(event);
  }
  asked.connection.reset();
  await client.untilEnded();
});

test('--stream-coalesce-ms: a client that leaves while its stream is held back stops the engine', async (t) => {
  const { ask, client, router } = await startScene(t, { streamCoalesceMs: 5_000 });
  const asked = await ask(HELLO);
  asked.beginStream();
  await client.read('\r\n\r\n');
  for (let i = 0; i < 3; i++) {
    asked.connection.write(events[i]!);
    if (i < 2) await client.read(events[i]!);
  }
  await until('all is read', () => client.bytesReceived > 0);
  client.reset();
  await asked.connection.untilEnded(1_000);
  await untilIdle(router);
});

test('--stream-coalesce-ms: other answers are never held back', async (t) => {
  const { ask, client } = await startScene(t, { streamCoalesceMs: 10_000 });
  const asked = await ask(HELLO);
  asked.connection.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: application/x-ndjson\r\n\r\n');
  for (const event of events) {
    asked.connection.write(event);
    await client.read(event);
  }
});
