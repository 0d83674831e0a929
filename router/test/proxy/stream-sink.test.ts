import { equal, ok, rejects } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { request } from '../harness/client.ts';
import { dispatch } from '../harness/dispatch.ts';
import { chunk } from '../harness/message.ts';
import { startScene, untilIdle } from '../harness/router.ts';
import { settled, within } from '../harness/within.ts';
import type { Exchange } from '../../src/exchange.ts';
import { StreamSink } from '../../src/forward/stream-sink.ts';

async function streamScene(t: TestContext, options = {}) {
  const { engine, router } = await startScene(t, options);
  let x: Exchange | null = null;
  const sink = new StreamSink(() => x?.onClientLeft());
  x = dispatch(router, request('POST', '/generate', '{}'), sink);
  const asked = await engine.next();
  return { engine, router, sink, x, asked };
}

const text = (part: { value?: Uint8Array | undefined }): string => Buffer.from(part.value ?? []).toString();

test('a stream sink gives the head, then the payload as it comes, then the end', async (t) => {
  const { sink, asked, router, x } = await streamScene(t);
  asked.beginStream();
  const head = await within(sink.headCame, 'the head');
  equal(head.isEventStream, true);
  const reader = sink.payload.getReader();
  for (let i = 0; i < 5; i++) {
    asked.connection.write(chunk(`data: ${i}\n\n`));
    equal(text(await within(reader.read(), 'the next part')), `data: ${i}\n\n`);
  }
  asked.connection.write('0\r\n\r\n');
  equal((await within(reader.read(), 'the end')).done, true);
  equal(x.outcome, 'complete');
  await untilIdle(router);
});

test('a reader that does not read pauses the engine; when it reads on, every byte arrives', async (t) => {
  const { sink, asked, router } = await streamScene(t);
  const total = 48_000_000;
  const { socket } = asked.connection;
  socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${total}\r\n\r\n`);
  const part = Buffer.alloc(1_000_000, 'x');
  let written = 0;
  const writeOn = (): void => {
    while (written < total) {
      written += part.length;
      if (!socket.write(part)) return;
    }
  };
  socket.on('drain', writeOn);
  writeOn();
  const stuckAt = await settled('what the engine could write', () => written);
  ok(stuckAt < 20_000_000, `the engine could write ${stuckAt} bytes to a reader that reads nothing`);
  let read = 0;
  for await (const bytes of sink.payload) read += bytes.length;
  equal(read, total);
  await untilIdle(router);
});

test('a reader that cancels stops the engine', async (t) => {
  const { sink, asked, router, x } = await streamScene(t);
  asked.beginStream();
  asked.connection.write(chunk('data: 1\n\n'));
  const reader = sink.payload.getReader();
  await within(reader.read(), 'the first part');
  await reader.cancel();
  await asked.connection.untilEnded();
  equal(x.outcome, 'client_left');
  await untilIdle(router);
});

test('a cut reaches the reader as an error, after what came before it', async (t) => {
  const { sink, asked, router, x } = await streamScene(t);
  asked.beginStream();
  asked.connection.write(chunk('data: 1\n\n'));
  const reader = sink.payload.getReader();
  equal(text(await within(reader.read(), 'the first part')), 'data: 1\n\n');
  asked.connection.reset();
  await rejects(within(reader.read(), 'the error'), /broke off/);
  equal(x.outcome, 'cut');
  await untilIdle(router);
});

test('an engine that dies before its head: the router\u2019s error is the answer', async (t) => {
  const { sink, asked } = await streamScene(t, { disableRetries: true });
  asked.connection.reset();
  equal((await within(sink.headCame, 'the head')).status, 502);
  const said = await within(new Response(sink.payload).json(), 'the error');
  equal((said as { error: { code: number } }).error.code, 502);
});
