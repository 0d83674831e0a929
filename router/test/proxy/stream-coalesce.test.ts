import { deepEqual, equal, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { makeCertificate } from '../harness/certificate.ts';
import { connectClient } from '../harness/client.ts';
import { STREAM_HEAD, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, type Scene, startScene, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

/** The share of the time for which the event loop is busy, as the router sees it. */
function fakeBusy(t: TestContext): { busy: number } {
  const fake = { busy: 0 };
  t.mock.method(performance, 'eventLoopUtilization', () => ({ idle: 0, active: 0, utilization: fake.busy }));
  return fake;
}

/** The delay in seconds, and the reads that were delayed so far. */
async function paceOf({ router }: Pick<Scene, 'router'>): Promise<[number, number]> {
  const text = await (await fetch(`${router.metricsUrl}/metrics`)).text();
  const value = (name: string): number => Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)![1]);
  return [value('turnout_stream_delay_seconds'), value('turnout_stream_reads_delayed_total')];
}

/** Sends a stream, each part once the client has the one before it. @returns all that came to the client */
async function stepwise({ ask, client }: Pick<Scene, 'ask' | 'client'>, parts: readonly string[]): Promise<string> {
  const asked = await ask(HELLO);
  asked.beginStream();
  let all = await client.read('\r\n\r\n');
  for (const part of parts) {
    asked.connection.write(part);
    all += await client.read(part);
  }
  return all;
}

const events = Array.from({ length: 60 }, (_, i) => chunk(`data: {"n":${i}}\n\n`));

/** Sends a stream of these events, some milliseconds apart. @returns in how many parts it came to the client, and how long that took */
async function steady({ ask, client }: Pick<Scene, 'ask' | 'client'>): Promise<{ parts: number; ms: number }> {
  const asked = await ask(HELLO);
  const beganMs = performance.now();
  let parts = 0;
  client.socket.on('data', () => parts++);
  asked.beginStream();
  for (const event of events) {
    asked.connection.write(event);
    await delay(3);
  }
  asked.connection.write('0\r\n\r\n');
  equal((await client.answer()).raw.toString(), `${events.join('')}0\r\n\r\n`);
  return { parts, ms: performance.now() - beganMs };
}

test('--stream-coalesce-ms: the same bytes, in fewer parts', async (t) => {
  const { parts, ms } = await steady(await startScene(t, { streamCoalesceMs: 40 }));
  ok(parts <= 8 + ms / 40, `60 events came in ${parts} parts in ${ms} ms`);
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
      equal((await client.answer()).raw.toString(), `${events.slice(0, 9).join('')}0\r\n\r\n`);
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
  const { ask, client, router } = await startScene(t, { streamCoalesceMs: 10_000 });
  const asked = await ask(HELLO);
  asked.beginStream();
  await client.read('\r\n\r\n');
  for (let i = 0; i < 3; i++) {
    asked.connection.write(events[i]!);
    if (i < 2) await client.read(events[i]!);
  }
  await until('all is read', () => client.bytesReceived > 0);
  client.reset();
  await asked.connection.untilEnded(8_000);
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

test('--stream-coalesce-ms: the end is not delayed after an event with a finish reason', async (t) => {
  const scene = await startScene(t, { streamCoalesceMs: 10_000 });
  const last = [chunk('data: {"usage":{}}\n\n'), `${chunk('data: [DONE]\n\n')}0\r\n\r\n`];
  for (const finish of ['"stop"', ' "length"', ' {"type":"length"}']) {
    await stepwise(scene, [
      ...events.slice(0, 2),
      chunk(`data: {"finish_reason":${finish},"stop_reason":null}\n\n`),
      ...last,
    ]);
  }
  deepEqual(await paceOf(scene), [10, 0]);
});

test('--stream-coalesce-ms: an event whose finish reason is null is one like any other', async (t) => {
  for (const finish of ['null', ' null']) {
    const scene = await startScene(t, { streamCoalesceMs: 10_000 });
    await stepwise(scene, [...events.slice(0, 2), chunk(`data: {"finish_reason":${finish}}\n\n`)]);
    deepEqual(await paceOf(scene), [10, 1]);
  }
});

test('--stream-coalesce-ms: an engine is not silent while a read is delayed', async (t) => {
  const scene = await startScene(t, { streamCoalesceMs: 3_000, streamIdleTimeoutSecs: 2 });
  const asked = await scene.ask(HELLO);
  asked.beginStream();
  await scene.client.read('\r\n\r\n');
  for (const event of events.slice(0, 4)) {
    asked.connection.write(event);
    if (event !== events[3]) await scene.client.read(event);
  }
  await until('a read is delayed', async () => (await paceOf(scene))[1] === 1);
  asked.connection.write(`${events[4]!}0\r\n\r\n`);
  await scene.client.read(`${events[4]!}0\r\n\r\n`);
});

test('--stream-coalesce-ms: all that an https engine sent is read after the delay', async (t) => {
  const certificate = makeCertificate(t, 'one');
  if (certificate === null) return;
  const { cert, key, certPath } = certificate;
  const { ask, client, router } = await startScene(t, {
    engine: { tls: { cert, key } },
    caCertPath: certPath,
    streamCoalesceMs: 200,
  });
  const { parts, ms } = await steady({ ask, client });
  ok(parts <= 8 + ms / 40, `60 events came in ${parts} parts in ${ms} ms`);
  await untilIdle(router);
  // The connection is read again for the next request.
  (await ask(HELLO)).answer('"again"');
  equal((await client.answer()).text, '"again"');
});

test('--stream-coalesce-ms auto, the default: no read is delayed while the event loop is less than half busy', async (t) => {
  const fake = fakeBusy(t);
  const scene = await startScene(t);
  equal(scene.router.config.streamCoalesceMs, 'auto');
  fake.busy = 0.49;
  await stepwise(scene, [...events, '0\r\n\r\n']);
  deepEqual(await paceOf(scene), [0, 0]);
});

test('--stream-coalesce-ms auto: a busy event loop reads fast streams less often and slow ones as they come', async (t) => {
  const fake = fakeBusy(t);
  const scene = await startScene(t);
  fake.busy = 1;
  await until('the delay has its maximum', async () => (await paceOf(scene))[0] === 0.02);
  const { ms } = await steady(scene);
  const [, delayed] = await paceOf(scene);
  ok(delayed > 0 && delayed <= 4 + ms / 20, `${delayed} reads were delayed in ${ms} ms`);
  // Of these, each event comes after the one before it was read: a delayed read has one.
  await stepwise(scene, [...events, '0\r\n\r\n']);
  equal((await paceOf(scene))[1], delayed + 3);
  fake.busy = 0.2;
  await until('the delay is over', async () => (await paceOf(scene))[0] === 0);
});
