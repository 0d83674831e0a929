import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene, untilIdle } from '../harness/router.ts';

test('a client that ends its side after the request counts as gone', async (t) => {
  const { client, ask, router } = await startScene(t);
  const asked = await ask(HELLO);
  client.end();
  await asked.connection.untilEnded();
  await client.untilEnded();
  equal(client.received.length, 0);
  await untilIdle(router);
});

test('--allow-half-close: it gets its answer, and then the end', async (t) => {
  const { client, ask, router } = await startScene(t, { allowHalfClose: true });
  const asked = await ask(HELLO);
  client.end();
  asked.beginStream();
  for (let i = 0; i < 3; i++) {
    asked.connection.write(chunk(`data: ${i}\n\n`));
    await client.read(`data: ${i}\n\n`);
  }
  asked.connection.write('0\r\n\r\n');
  await client.read('0\r\n\r\n');
  equal(await client.untilClosed(), 'end');
  await untilIdle(router);
});

test('--allow-half-close: a client that then leaves for good stops the engine', async (t) => {
  const { client, ask } = await startScene(t, { allowHalfClose: true });
  const asked = await ask(HELLO);
  client.end();
  asked.beginStream();
  await client.read('\r\n\r\n');
  client.reset();
  const more = setInterval(() => asked.connection.write(chunk('data: on\n\n')), 10);
  t.after(() => clearInterval(more));
  await asked.connection.untilEnded();
});

test('--allow-half-close: half a request is not a request', async (t) => {
  const { client, ask, router } = await startScene(t, { allowHalfClose: true });
  const asked = await ask(request('POST', '/x', 'whole body').slice(0, -4));
  client.end();
  await asked.connection.untilEnded();
  await client.untilEnded();
  await untilIdle(router);
});

test('--allow-half-close: all pipelined requests are answered', async (t) => {
  const { client, engine } = await startScene(t, { allowHalfClose: true });
  client.write(request('GET', '/1') + request('GET', '/2'));
  client.end();
  (await engine.next()).answer('1');
  equal((await client.answer()).text, '1');
  (await engine.next()).answer('2');
  equal((await client.answer()).text, '2');
  equal(await client.untilClosed(), 'end');
});

test('an engine that ends its side before it answers has not answered', async (t) => {
  const { client, ask } = await startScene(t, { disableRetries: true });
  (await ask(HELLO)).connection.end();
  equal((await client.answer()).status, 502);
});
