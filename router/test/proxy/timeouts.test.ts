import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { startScene, untilIdle } from '../harness/router.ts';
import { undisturbed } from '../harness/undisturbed.ts';
import { until } from '../harness/within.ts';

const GENERATE = request('POST', '/generate', '{}');

test('no response in time: 504 that names its option, the engine is aborted, no other engine is asked', async (t) => {
  const second = await startEngine(t);
  const { client, ask, engine, router } = await startScene(t, { firstByteTimeoutSecs: 0.05 });
  router.fleet.add(second.url);
  const asked = await ask(GENERATE);
  const got = await client.answer();
  deepEqual([got.status, got.get('x-turnout-error')], [504, 'first_byte_timeout']);
  match(got.text, /within 0\.05 s.*--first-byte-timeout-secs/);
  await asked.connection.untilEnded();
  equal(engine.requests.length + second.requests.length, 1);
  await untilIdle(router);
});

test(
  'the time for the first byte begins when the request is sent whole',
  undisturbed(300, async (t) => {
    const { client, engine } = await startScene(t, { firstByteTimeoutSecs: 0.3 });
    const whole = request('POST', '/generate', 'x'.repeat(100_000));
    client.write(whole.slice(0, 50_000));
    const asked = await engine.next();
    await delay(400);
    client.write(whole.slice(50_000));
    await asked.payload();
    asked.answer('"in time"');
    equal((await client.answer()).text, '"in time"');
  }),
);

test('a stream that falls silent ends in an error event, without a last chunk', async (t) => {
  const { client, ask, router } = await startScene(t, { streamIdleTimeoutSecs: 0.1 });
  const asked = await ask(GENERATE);
  asked.beginStream();
  asked.connection.write(chunk('data: 1\n\n'));
  await client.read('data: 1\n\n\r\n');
  await client.untilEnded();
  match(client.unread, /data: \{"error":.*sent nothing for too long/);
  ok(!client.hasLastChunk);
  equal(await asked.connection.untilEnded(), 'end');
  await untilIdle(router);
});

test(
  'a stream that says something now and then goes on',
  undisturbed(600, async (t) => {
    const { client, ask } = await startScene(t, { streamIdleTimeoutSecs: 0.6, firstByteTimeoutSecs: 0.6 });
    const asked = await ask(GENERATE);
    asked.beginStream();
    match(await client.read('\r\n\r\n'), /^HTTP\/1\.1 200 /);
    for (let i = 0; i < 5; i++) {
      await delay(200);
      asked.connection.write(chunk(`data: ${i}\n\n`));
      await client.read(`data: ${i}\n\n`);
    }
    asked.connection.write('0\r\n\r\n');
    await client.read('0\r\n\r\n');
  }),
);

test('an engine that waits for its client is not silent', async (t) => {
  // Longer than a busy machine keeps this process waiting.
  const { client, ask, router } = await startScene(t, { streamIdleTimeoutSecs: 1.5 });
  client.socket.pause();
  const asked = await ask(GENERATE);
  const total = 64_000_000;
  asked.connection.write(`HTTP/1.1 200 OK\r\ncontent-length: ${total}\r\n\r\n`);
  asked.connection.socket.write(Buffer.alloc(total));
  await new Promise((resolve) => {
    setTimeout(resolve, 3_000);
  });
  equal(router.pipeline.inFlight.size, 1);
  client.isRecording = false;
  client.socket.resume();
  await untilIdle(router);
  const metrics = await (await fetch(router.metricsUrl)).text();
  match(metrics, /turnout_requests_total\{outcome="complete"\} 1/);
});

test('x-turnout-timeout: the client says how long all of it may take', async (t) => {
  const { client, ask, router } = await startScene(t);
  const asked = await ask(request('POST', '/generate', '{}', ['x-turnout-timeout: 0.05']));
  equal(asked.head.get('x-turnout-timeout'), '0.05');
  const got = await client.answer();
  deepEqual([got.status, got.get('x-turnout-error')], [504, 'request_timeout']);
  match(got.text, /was not finished after 0\.05 s \(x-turnout-timeout\)/);
  await untilIdle(router);
});

test('of the two limits on all of it the shorter one holds', async (t) => {
  for (const [option, header, says] of [
    [0.05, '60', '--request-timeout-secs'],
    [60, '0.05', 'x-turnout-timeout'],
  ] as const) {
    const { client, ask } = await startScene(t, { requestTimeoutSecs: option });
    await ask(request('POST', '/generate', '{}', [`x-turnout-timeout: ${header}`]));
    match((await client.answer()).text, new RegExp(says));
  }
});

test('an x-turnout-timeout beyond the longest timer of Node is as good as none', async (t) => {
  const { client, ask } = await startScene(t);
  const asked = await ask(request('POST', '/generate', '{}', ['x-turnout-timeout: 9999999']));
  // A longer timer ends after 1 ms.
  await delay(2);
  asked.answer('{}');
  equal((await client.answer()).status, 200);
});

test('an x-turnout-timeout that is no number of seconds is refused', async (t) => {
  const { router, engine } = await startScene(t);
  for (const text of ['0', '-1', '1e3', '10s', '0x10', 'soon', '1.', ' . ', '99999999']) {
    const got = await send(t, router.url, request('POST', '/generate', '{}', [`x-turnout-timeout: ${text}`]));
    equal(got.status, 400, text);
    match(got.text, /number of seconds/);
  }
  equal(engine.requests.length, 0);
});

test('a client that takes no byte for too long is let go, and its work stopped', async (t) => {
  const { client, ask, router } = await startScene(t, { clientWriteTimeoutSecs: 0.3 });
  client.socket.pause();
  const asked = await ask(GENERATE);
  const total = 256_000_000;
  asked.connection.write(`HTTP/1.1 200 OK\r\ncontent-length: ${total}\r\n\r\n`);
  const part = Buffer.alloc(1_000_000);
  const { socket } = asked.connection;
  const writeOn = (): void => {
    while (!socket.destroyed && socket.write(part));
  };
  socket.on('drain', writeOn);
  writeOn();
  await asked.connection.untilEnded();
  await untilIdle(router);
  const metrics = await (await fetch(router.metricsUrl)).text();
  match(metrics, /turnout_requests_total\{outcome="client_left"\} 1/);
});

test(
  'a client that reads slowly is not a client that has stopped reading',
  undisturbed(600, async (t) => {
    const { client, ask, router } = await startScene(t, { clientWriteTimeoutSecs: 0.6 });
    const asked = await ask(GENERATE);
    client.isRecording = false;
    client.stall();
    const total = 24_000_000;
    asked.connection.write(`HTTP/1.1 200 OK\r\ncontent-length: ${total}\r\n\r\n`);
    asked.connection.socket.write(Buffer.alloc(total));
    const beganMs = performance.now();
    // A megabyte at a time, always sooner than the limit.
    let wantedBytes = 0;
    client.socket.on('data', () => {
      if (client.bytesReceived >= wantedBytes) client.stall();
    });
    const timer = setInterval(() => {
      wantedBytes = client.bytesReceived + 1_000_000;
      client.goOn();
    }, 60);
    t.after(() => clearInterval(timer));
    await until('all of it went out', () => router.pipeline.inFlight.size === 0);
    const metrics = await (await fetch(router.metricsUrl)).text();
    match(metrics, /turnout_requests_total\{outcome="complete"\} 1/);
    ok(performance.now() - beganMs > 600, 'it took longer than the limit');
  }),
);
