import { equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { HELLO, startScene, untilIdle } from '../harness/router.ts';
import { settled, until } from '../harness/within.ts';
import type { ClientConnection } from '../../src/wire/client-connection.ts';
import type { Held } from '../../src/wire/socket-memory.ts';

const MB = 1_048_576;
/** What the system itself buffers in four sockets on loopback, at its default limits, and then some. */
const SYSTEM_BUFFERS = 24 * MB;
const TOTAL = 96 * MB;

test('a client that does not read pauses the engine; when it reads on, every byte arrives', async (t) => {
  const { client, ask, router } = await startScene(t);
  client.isRecording = false;
  const asked = await ask(HELLO);
  client.stall();
  const part = Buffer.alloc(MB, 'x');
  let written = 0;
  const writeOn = (): void => {
    while (written < TOTAL) {
      written += part.length;
      if (!asked.connection.socket.write(part)) return;
    }
  };
  asked.connection.socket.on('drain', writeOn);
  asked.connection.write(`HTTP/1.1 200 OK\r\ncontent-length: ${TOTAL}\r\n\r\n`);
  writeOn();
  const stuckAt = await settled('what the engine could write', () => written);
  ok(stuckAt < SYSTEM_BUFFERS, `the engine could write ${stuckAt / MB} MB to a client that reads nothing`);
  const [exchange] = router.pipeline.inFlight;
  const { socket } = exchange!.sink as ClientConnection;
  const { writeQueueSize } = (socket as unknown as Held<{ readonly writeQueueSize: number }>)._handle!;
  const unsent = writeQueueSize + socket.writableLength;
  ok(unsent > 0 && unsent <= 131_072, `${unsent} bytes wait in the router`);
  client.goOn();
  await until('all of it arrives', () => client.bytesReceived > TOTAL);
  await untilIdle(router);
});

test('a client that never reads and leaves: the paused engine is let go', async (t) => {
  const { client, ask, router } = await startScene(t);
  const asked = await ask(HELLO);
  client.stall();
  asked.connection.write(`HTTP/1.1 200 OK\r\ncontent-length: ${TOTAL}\r\n\r\n`);
  asked.connection.write(Buffer.alloc(TOTAL / 2, 'x'));
  await settled('what the router has read', () => asked.connection.socket.bytesWritten);
  client.reset();
  await asked.connection.untilEnded();
  await untilIdle(router);
});

for (const framing of ['content-length', 'chunked'] as const) {
  test(`an engine that does not read pauses the client (${framing}); when it reads on, every byte arrives`, async (t) => {
    const { client, engine, ask } = await startScene(t, { retryBufferBytes: 0 });
    engine.onConnection = (connection) => {
      connection.isRecording = false;
    };
    const fields = framing === 'chunked' ? 'transfer-encoding: chunked' : `content-length: ${TOTAL}`;
    const asked = await ask(`POST /up HTTP/1.1\r\nhost: h\r\n${fields}\r\n\r\n`);
    asked.connection.stall();
    const part = Buffer.alloc(MB, 'x');
    const framed = Buffer.concat([Buffer.from(`${MB.toString(16)}\r\n`), part, Buffer.from('\r\n')]);
    let written = 0;
    const writeOn = (): void => {
      while (written < TOTAL) {
        written += part.length;
        if (!client.socket.write(framing === 'chunked' ? framed : part)) return;
      }
      client.socket.off('drain', writeOn);
      if (framing === 'chunked') client.write('0\r\n\r\n');
    };
    client.socket.on('drain', writeOn);
    writeOn();
    const stuckAt = await settled('what the client could write', () => written);
    ok(stuckAt < SYSTEM_BUFFERS, `the client could write ${stuckAt / MB} MB to an engine that reads nothing`);
    asked.connection.goOn();
    equal((await asked.payload(20_000)).length, TOTAL);
    asked.answer('{}');
    equal((await client.answer()).status, 200);
  });
}

for (const leaves of [true, false]) {
  test(`an engine that takes no byte of a body is left: its client ${leaves ? 'has left too' : 'gets 502'}`, async (t) => {
    const { client, router, engine } = await startScene(t, { workerWriteTimeoutSecs: 0.3 });
    engine.onConnection = (connection) => connection.stall();
    const length = 2 * SYSTEM_BUFFERS;
    client.write(`POST /up HTTP/1.1\r\nhost: h\r\ncontent-length: ${length}\r\n\r\n`);
    client.write(Buffer.alloc(length, 'x'));
    await until('the request is there', () => router.pipeline.inFlight.size === 1);
    const [exchange] = router.pipeline.inFlight;
    await until('the request is on its way', () => engine.openSockets === 1);
    if (leaves) {
      await settled('what the router has read', () => exchange!.body.bytes);
      client.reset();
    } else equal((await client.answer('POST')).status, 502);
    await untilIdle(router);
    await until('its connection is closed', () => router.fleet.workers[0]!.pool.openCount === 0);
  });
}
