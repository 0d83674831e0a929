import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { type Socket, connect } from 'node:net';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { STREAM_HEAD, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { freeze } from './frozen.ts';
import { needsProc } from './router-process.ts';
import { startFaultScene, untilQuiet, well, whenRead } from './scene.ts';

const GENERATE = request('POST', '/generate', '{"text":"x"}');
const MB = 1_048_576;

test('F10 --stream-idle-timeout-secs: a head and then nothing ends in an error event, and the engine is stopped', async (t) => {
  const scene = await startFaultScene(
    t,
    [whenRead(({ connection }) => connection.write(STREAM_HEAD + chunk('data: 1\n\n'))), well()],
    { streamIdleTimeoutSecs: 0.3 },
  );
  const client = await connectClient(t, scene.router.url);
  client.write(GENERATE);
  await client.read(chunk('data: 1\n\n'));
  await client.untilEnded();
  match(client.unread, /data: \{.*\}\n\n\r\n$/, 'an error event, and no last chunk behind it');
  const { connection } = scene.engines[0]!.requests[0]!;
  await connection.untilEnded();
  deepEqual(scene.hits(), [1, 0]);
  equal(await scene.metric('turnout_errors_total{code="stream_idle_timeout"}'), 1);
  await scene.untilQuiet();
});

test('F10 --stream-idle-timeout-secs: a stream that goes on, slowly, is left alone', async (t) => {
  const scene = await startFaultScene(t, [(asked) => asked.beginStream()], { streamIdleTimeoutSecs: 0.6 });
  const client = await connectClient(t, scene.router.url);
  client.write(GENERATE);
  const { connection } = await scene.engines[0]!.next();
  for (let i = 0; i < 8; i++) {
    await new Promise((resolve) => {
      setTimeout(resolve, 150);
    });
    connection.write(chunk(`data: ${i}\n\n`));
    await client.read(chunk(`data: ${i}\n\n`));
  }
  connection.write('0\r\n\r\n');
  await client.read('0\r\n\r\n');
  await scene.untilQuiet();
});

test('F19 --first-byte-timeout-secs: a head that drips in gets 504, and no other engine is tried', async (t) => {
  const scene = await startFaultScene(
    t,
    [
      whenRead(({ connection }) => {
        const drip = setInterval(() => connection.write('H'), 50);
        connection.write('HTTP/1.1 200 OK\r\nx-drip: ');
        connection.socket.on('close', () => clearInterval(drip));
        void connection.ended.then(() => clearInterval(drip));
      }),
      well(),
    ],
    { firstByteTimeoutSecs: 0.3 },
  );
  const got = await send(t, scene.router.url, GENERATE);
  deepEqual([got.status, got.get('x-turnout-error')], [504, 'first_byte_timeout']);
  equal(got.get('x-drip'), undefined);
  await scene.engines[0]!.connections[0]!.untilEnded();
  deepEqual(scene.hits(), [1, 0]);
  await scene.untilQuiet();
});

/** Of the matrix's 2,000 connections, as many as files may be open here: each is two files, of client and router. */
function crowdSize(): number {
  if (needsProc !== false) return 500;
  const [, most] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))!;
  return Math.min(2_000, Math.floor((Number(most) - 200) / 2));
}

test('F34 slowloris: 2,000 heads that drip get 408 at the timer of the head; other requests go by', async (t) => {
  const engine = await startEngine(t, { onRequest: well() });
  const router = await startTestRouter(t, { workerUrls: [engine.url], clientHeadTimeoutSecs: 2 });
  const { hostname, port } = new URL(router.url);
  const size = crowdSize();
  const said: string[] = [];
  let closed = 0;
  const crowd: Socket[] = Array.from({ length: size }, (_, i) => {
    const socket = connect(Number(port), hostname);
    said[i] = '';
    socket.on('data', (bytes: Buffer) => (said[i] += bytes.toString('latin1')));
    socket.on('error', () => {});
    socket.on('close', () => closed++);
    t.after(() => socket.destroy());
    socket.write('POST /generate HTTP/1.1\r\nhost: h\r\nx-slow: ');
    return socket;
  });
  const drip = setInterval(() => {
    for (const socket of crowd) if (socket.writable) socket.write('s');
  }, 500);
  t.after(() => clearInterval(drip));
  const client = await connectClient(t, router.url);
  let served = 0;
  while (closed < size && served < 100_000) {
    client.write(GENERATE);
    equal((await client.answer()).status, 200);
    served++;
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
  }
  equal(said.filter((text) => text.startsWith('HTTP/1.1 408 ')).length, size);
  ok(served > 0);
  equal(engine.requests.length, served, 'none of the slow ones reached the engine');
  await untilQuiet(router, [engine]);
});

test('F35 a body that stops coming: 408 at its timer, and the engine that has begun is stopped', async (t) => {
  const scene = await startFaultScene(t, [() => {}, well()], { clientBodyTimeoutSecs: 0.3 });
  const client = await connectClient(t, scene.router.url);
  client.write('POST /generate HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\nx');
  const { connection } = await scene.engines[0]!.next();
  const got = await client.answer();
  deepEqual([got.status, got.get('connection')], [408, 'close']);
  await connection.untilEnded();
  deepEqual(scene.hits(), [1, 0]);
  await scene.untilQuiet();
});

test('F35 where the policy waits for the body: no engine is held for it', async (t) => {
  const scene = await startFaultScene(t, [well()], { clientBodyTimeoutSecs: 0.3, policy: 'cache_aware' });
  const client = await connectClient(t, scene.router.url);
  client.write('POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\n{"prompt":"');
  equal((await client.answer()).status, 408);
  equal(scene.engines[0]!.connections.length, 0);
  await scene.untilQuiet();
});

/** An engine that has more to say than all buffers on the way hold. */
const endless = whenRead(({ connection }) => {
  const part = Buffer.alloc(MB, 'x');
  const writeOn = (): void => {
    while (connection.socket.writable && connection.socket.write(part));
  };
  connection.socket.on('drain', writeOn);
  connection.write(`HTTP/1.1 200 OK\r\ncontent-length: ${4_000 * MB}\r\n\r\n`);
  writeOn();
});

test('F36 a client that never reads: closed at the timer of writing, and the engine is stopped', async (t) => {
  const scene = await startFaultScene(t, [endless], { clientWriteTimeoutSecs: 0.4 });
  const client = await connectClient(t, scene.router.url);
  client.stall();
  client.write(GENERATE);
  const { connection } = await scene.engines[0]!.next();
  await connection.untilEnded();
  client.isRecording = false;
  client.goOn();
  await client.untilEnded();
  ok(client.bytesReceived < 200 * MB, 'it was cut');
  await scene.untilQuiet();
});

test('F36 a client that reads slowly is no client that never reads', async (t) => {
  // All pauses together are longer, each of them is far shorter.
  const scene = await startFaultScene(t, [endless], { clientWriteTimeoutSecs: 2.5 });
  const client = await connectClient(t, scene.router.url);
  client.isRecording = false;
  client.stall();
  client.write(GENERATE);
  const { connection } = await scene.engines[0]!.next();
  // What it takes at a time is more than a window: the router's writes go on, if late.
  for (let i = 0; i < 8; i++) {
    const from = client.bytesReceived;
    client.goOn();
    await until('it has taken some', () => client.bytesReceived > from + 12 * MB);
    client.stall();
    await new Promise((resolve) => {
      setTimeout(resolve, 350);
    });
  }
  equal(connection.hasEnded, false);
  client.reset();
  await connection.untilEnded();
  await scene.untilQuiet();
});

const READER = `
  const [host, port] = process.argv.slice(1);
  const socket = require('node:net').connect(Number(port), host);
  socket.on('data', () => {});
  socket.on('error', () => {});
  socket.write('POST /generate HTTP/1.1\\r\\nhost: h\\r\\ncontent-length: 2\\r\\n\\r\\n{}');`;

test('F37 a client that is gone without a word: freed by the timer of writing', { skip: needsProc }, async (t) => {
  // A frozen process: its system still speaks TCP, as long as there is room. What it can't do is take more.
  const scene = await startFaultScene(t, [endless], { clientWriteTimeoutSecs: 1.2 });
  const { hostname, port } = new URL(scene.router.url);
  const reader = spawn(process.execPath, ['-e', READER, hostname, port], { stdio: 'ignore' });
  t.after(() => reader.kill('SIGKILL'));
  const { connection } = await scene.engines[0]!.next();
  await until('it reads', () => connection.socket.bytesWritten > 25 * MB);
  await freeze(reader.pid!);
  await connection.untilEnded();
  await until('the router has let go of it', () => scene.router.pipeline.inFlight.size === 0);
  equal((await send(t, scene.router.url, request('GET', '/health'))).status, 200);
  await until('its connection is closed', async () => (await scene.metric('turnout_client_connections')) <= 1);
  await scene.untilQuiet();
});
