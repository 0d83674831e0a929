import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { startScene } from '../harness/router.ts';

test('a request that trickles in byte by byte is served', async (t) => {
  const { client, engine } = await startScene(t);
  await client.writeSlowly(request('POST', '/slow', '{"a":1}', ['x-one: 1', 'X-Two: 2']));
  const asked = await engine.next();
  equal((await asked.payload()).toString(), '{"a":1}');
  equal(asked.head.get('x-two'), '2');
  asked.answer('"ok"');
  equal((await client.answer()).text, '"ok"');
});

test('a chunked request that trickles in byte by byte is served', async (t) => {
  const { client, engine } = await startScene(t);
  await client.writeSlowly(
    'POST /c HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3;x=1\r\nabc\r\n002\r\nde\r\n0\r\nx: y\r\n\r\n',
  );
  const asked = await engine.next();
  equal((await asked.payload()).toString(), 'abcde');
});

test('two requests in one packet, the second one incomplete', async (t) => {
  const { client, engine } = await startScene(t);
  const second = request('POST', '/second', 'whole');
  client.write(request('GET', '/first') + second.slice(0, 20));
  (await engine.next()).answer('1');
  equal((await client.answer()).text, '1');
  client.write(second.slice(20));
  const asked = await engine.next();
  deepEqual([asked.target, (await asked.payload()).toString()], ['/second', 'whole']);
});

test('an empty line before a request is forgiven, also when it comes alone', async (t) => {
  const { client, engine } = await startScene(t);
  client.write(`\r\n${request('GET', '/1')}`);
  (await engine.next()).answer('1');
  await client.answer();
  await client.writeSlowly('\r\n');
  client.write(request('GET', '/2'));
  (await engine.next()).answer('2');
  equal((await client.answer()).text, '2');
  await client.writeSlowly(`\r\n${request('GET', '/3')}`);
  (await engine.next()).answer('3');
  equal((await client.answer()).text, '3');
});

test('a head of nearly 64 KB and 200 lines passes', async (t) => {
  const { client, engine } = await startScene(t);
  const fields = Array.from({ length: 199 }, (_, i) => `x-${i}: ${'v'.repeat(300)}`);
  client.write(request('GET', '/big', '', fields));
  const asked = await engine.next();
  equal(asked.head.all('x-198').length, 1);
  asked.answer('"ok"');
  equal((await client.answer()).text, '"ok"');
});
