import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { HELLO, startScene } from '../harness/router.ts';

const EXPECTING = 'POST /u HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n';

test('a client that waits for 100 Continue gets it, once, and its body then flows', async (t) => {
  const { client, engine } = await startScene(t);
  client.write(EXPECTING);
  equal(await client.read('\r\n\r\n'), 'HTTP/1.1 100 Continue\r\n\r\n');
  client.write('hello');
  const asked = await engine.next();
  equal((await asked.payload()).toString(), 'hello');
  equal(asked.head.get('expect'), undefined);
  // The engine's own 100 is for its hop.
  asked.connection.write(`HTTP/1.1 100 Continue\r\n\r\n${answer(201, 'done')}`);
  const got = await client.answer();
  equal(got.status, 201);
  equal(got.text, 'done');
});

test('a client that sent its body without waiting gets no 100', async (t) => {
  const { client, engine } = await startScene(t);
  client.write(`${EXPECTING}hello`);
  const asked = await engine.next();
  equal((await asked.payload()).toString(), 'hello');
  asked.answer('{}');
  equal((await client.answer()).status, 200);
});

test('an expectation in HTTP/1.0 is ignored', async (t) => {
  const { client, engine } = await startScene(t);
  client.write('POST /u HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n');
  client.write('hello');
  const asked = await engine.next();
  await asked.payload();
  asked.answer('{}');
  equal((await client.answer()).status, 200);
});

test('an unknown expectation is refused with 417', async (t) => {
  const { client, engine } = await startScene(t);
  client.write('POST /u HTTP/1.1\r\nhost: h\r\nexpect: 200-ok\r\ncontent-length: 5\r\n\r\n');
  equal((await client.answer()).status, 417);
  equal(await client.untilEnded(), 'end');
  equal(engine.connections.length, 0);
});

test('too large a body is refused instead of waved through', async (t) => {
  const { client, engine } = await startScene(t, { maxPayloadSize: 4 });
  client.write(EXPECTING);
  equal((await client.answer()).status, 413);
  equal(engine.connections.length, 0);
});

test('a request that is refused at once is not asked for its body', async (t) => {
  const { client, ask, router } = await startScene(t, { maxConcurrentRequests: 1, queueSize: 0 });
  const running = await ask(HELLO);
  const other = await connectClient(t, router.url);
  other.write(EXPECTING);
  equal((await other.answer()).status, 429);
  equal(await other.untilEnded(), 'end');
  running.answer('1');
  equal((await client.answer()).status, 200);
});
