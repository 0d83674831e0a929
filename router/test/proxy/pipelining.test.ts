import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { startScene } from '../harness/router.ts';

test('pipelined requests are answered one by one, in their order', async (t) => {
  const { client, engine } = await startScene(t);
  const count = 100;
  client.write(Array.from({ length: count }, (_, i) => request('POST', `/${i}`, `body ${i}`)).join(''));
  for (let i = 0; i < count; i++) {
    const asked = await engine.next();
    equal(asked.target, `/${i}`);
    equal((await asked.payload()).toString(), `body ${i}`);
    equal(engine.requests.length, i + 1);
    asked.answer(`answer ${i}`);
    equal((await client.answer()).text, `answer ${i}`);
  }
});

test('a large request and then tiny ones: order and bytes stay apart', async (t) => {
  const { client, engine } = await startScene(t);
  const large = 'L'.repeat(700_000);
  client.write(request('POST', '/large', large) + request('POST', '/a', 'a') + request('GET', '/b'));
  const seen: [string, number][] = [];
  for (let i = 0; i < 3; i++) {
    const asked = await engine.next();
    seen.push([asked.target, (await asked.payload()).length]);
    asked.answer(asked.target);
    equal((await client.answer()).text, asked.target);
  }
  deepEqual(seen, [
    ['/large', 700_000],
    ['/a', 1],
    ['/b', 0],
  ]);
});

test('when a client leaves, the requests it pipelined are not sent', async (t) => {
  const { client, engine } = await startScene(t);
  client.write(request('GET', '/x').repeat(100));
  for (let i = 0; i < 3; i++) {
    (await engine.next()).answer('{}');
    await client.answer();
  }
  const fourth = await engine.next();
  client.reset();
  await fourth.connection.untilEnded();
  equal(engine.requests.length, 4);
});

test('what follows a request with connection: close is not read', async (t) => {
  const { client, engine } = await startScene(t);
  client.write(request('GET', '/last', '', ['connection: close']) + request('GET', '/beyond'));
  (await engine.next()).answer('{}');
  equal((await client.answer()).get('connection'), 'close');
  equal(await client.untilEnded(), 'end');
  equal(engine.requests.length, 1);
});

test('a malformed request behind a good one: the good one is answered first, then the refusal', async (t) => {
  const { client, engine } = await startScene(t);
  client.write(`${request('GET', '/good')}GET bad HTTP/1.1\r\nhost: h\r\n\r\n${request('GET', '/beyond')}`);
  (await engine.next()).answer('{"good":1}');
  equal((await client.answer()).text, '{"good":1}');
  const refusal = await client.answer();
  equal(refusal.status, 400);
  equal(refusal.get('connection'), 'close');
  equal(await client.untilEnded(), 'end');
  equal(engine.requests.length, 1);
});

test('one connection, engine and router endpoints by turns', async (t) => {
  const { client, engine } = await startScene(t);
  client.write(request('GET', '/list_workers') + request('GET', '/one') + request('GET', '/liveness'));
  deepEqual(JSON.parse((await client.answer()).text), { urls: [engine.url] });
  (await engine.next()).answer('"one"');
  equal((await client.answer()).text, '"one"');
  equal((await client.answer()).text, 'OK');
});
