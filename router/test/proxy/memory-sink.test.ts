import { deepEqual, equal, rejects } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { dispatch } from '../harness/dispatch.ts';
import { answer, deadUrl } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { startScene, startTestRouter, untilIdle } from '../harness/router.ts';
import { until, within } from '../harness/within.ts';
import { MemorySink } from '../../src/forward/memory-sink.ts';

const POST = request('POST', '/generate', '{"q":1}');

test('a memory sink gets the whole answer: status, head, payload without its chunk lines', async (t) => {
  const { engine, router } = await startScene(t);
  const sink = new MemorySink(1_000);
  const x = dispatch(router, POST, sink);
  const asked = await engine.next();
  equal((await asked.payload()).toString(), '{"q":1}');
  asked.connection.write(
    `HTTP/1.1 207 Multi\r\nX-A: b\r\ntransfer-encoding: chunked\r\n\r\n${chunk('one')}3;x\r\ntwo\r\n0\r\nt: u\r\n\r\n`,
  );
  const got = await within(sink.answer, 'the answer');
  deepEqual([got.status, got.head.get('x-a'), got.body.toString()], [207, 'b', 'onetwo']);
  equal(x.outcome, 'complete');
  await untilIdle(router);
});

test('a memory sink gets the router\u2019s own errors as answers', async (t) => {
  const router = await startTestRouter(t, { workerUrls: [await deadUrl()] });
  const sink = new MemorySink(1_000);
  dispatch(router, POST, sink);
  const got = await within(sink.answer, 'the answer');
  deepEqual([got.status, got.head.get('x-turnout-error')], [503, 'no_available_workers']);
});

test('a memory sink rejects when the answer breaks off', async (t) => {
  const { engine, router } = await startScene(t);
  const sink = new MemorySink(1_000);
  dispatch(router, POST, sink);
  (await engine.next()).connection.socket.end('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf');
  await rejects(within(sink.answer, 'the answer'), /broke off/);
  await untilIdle(router);
});

test('a memory sink rejects an answer that outgrows it', async (t) => {
  const { engine, router } = await startScene(t);
  const sink = new MemorySink(1_000);
  dispatch(router, POST, sink);
  (await engine.next()).connection.write(answer(200, 'x'.repeat(1_001)));
  await rejects(within(sink.answer, 'the answer'), /larger than 1000/);
  await untilIdle(router);
});

test('an answer of just the largest size fits', async (t) => {
  const { engine, router } = await startScene(t);
  const sink = new MemorySink(100_000);
  dispatch(router, POST, sink);
  (await engine.next()).connection.write(answer(200, 'x'.repeat(100_000)));
  equal((await within(sink.answer, 'the answer')).body.length, 100_000);
});

test('an exchange without a client can be stopped', async (t) => {
  const { engine, router } = await startScene(t);
  const x = dispatch(router, POST, new MemorySink(1_000));
  const asked = await engine.next();
  x.onClientLeft();
  await asked.connection.untilEnded();
  equal(x.outcome, 'client_left');
  await untilIdle(router);
});

test('close ends what runs without a client too', async (t) => {
  const { engine, router } = await startScene(t);
  const sink = new MemorySink(1_000);
  dispatch(router, POST, sink);
  const asked = await engine.next();
  asked.beginStream();
  await until('the answer has begun', () => [...router.pipeline.underWay][0]?.isAnswerOut === true);
  void router.close();
  await asked.connection.untilEnded();
  await rejects(within(sink.answer, 'the answer'));
});
