import { deepEqual, equal, notEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { connectClient, request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

test('remove_worker lets a running stream finish and sends nothing new', async (t) => {
  const { router, engine, client, ask } = await startScene(t);
  const asked = await ask(request('POST', '/generate', '{}'));
  asked.beginStream();
  asked.connection.write(chunk('data: 1\n\n'));
  await client.read('data: 1\n\n');
  const removed = await send(t, router.url, request('POST', `/remove_worker?url=${engine.url}`));
  equal(removed.text, '{"status":"success","worker_urls":{}}');
  equal((await send(t, router.url, HELLO)).status, 503);
  asked.connection.write(chunk('data: 2\n\n'));
  await client.read('data: 2\n\n');
  asked.connection.write('0\r\n\r\n');
  await client.read('0\r\n\r\n');
  // The last work is done: its connection is not kept.
  await asked.connection.untilEnded();
  equal(engine.requests.length, 1);
  await untilIdle(router);
});

test('removing a worker closes its idle connections', async (t) => {
  const { router, engine, ask, client } = await startScene(t);
  (await ask(HELLO)).answer('{}');
  await client.answer();
  equal(engine.openConnections, 1);
  router.fleet.remove(router.fleet.workers[0]!);
  await engine.connections[0]!.untilEnded();
});

test('a slot is given out again only after its last work is done', async (t) => {
  const { router, engine, ask, client } = await startScene(t);
  const asked = await ask(HELLO);
  const old = router.fleet.workers[0]!;
  router.fleet.remove(old);
  const others = [router.fleet.add('http://127.0.0.1:1'), router.fleet.add('http://127.0.0.1:2')];
  for (const other of others) notEqual((other as typeof old).slot, old.slot);
  equal(router.fleet.load(old), 1);
  asked.answer('{}');
  await client.answer();
  await untilIdle(router);
  equal((router.fleet.add('http://127.0.0.1:3') as typeof old).slot, old.slot);
  equal((router.fleet.add('http://127.0.0.1:4') as typeof old).slot, 3);
  equal(engine.requests.length, 1);
});

test('a worker that is removed and added again while it still works is a new one', async (t) => {
  const { router, engine, ask, client } = await startScene(t);
  const asked = await ask(HELLO);
  const [old] = router.fleet.workers;
  router.fleet.remove(old!);
  await send(t, router.url, request('POST', `/add_worker?url=${engine.url}`));
  const [fresh] = router.fleet.workers;
  notEqual(fresh!.id, old!.id);
  deepEqual([router.fleet.load(old!), router.fleet.load(fresh!)], [1, 0]);
  const other = await connectClient(t, router.url);
  other.write(HELLO);
  (await engine.next()).answer('"new"');
  equal((await other.answer()).text, '"new"');
  asked.answer('"old"');
  equal((await client.answer()).text, '"old"');
  await untilIdle(router);
});

test('removing a worker that then dies: its request is tried at another one', async (t) => {
  const { router, ask, client } = await startScene(t);
  const other = await startEngine(t, { onRequest: (request) => request.answer('"other"') });
  const asked = await ask(HELLO);
  router.fleet.remove(router.fleet.workers[0]!);
  router.fleet.add(other.url);
  asked.connection.reset();
  equal((await client.answer()).text, '"other"');
  await untilIdle(router);
});

test('1,000 workers come and go: slots are reused, order is kept', async (t) => {
  const router = await startTestRouter(t);
  for (let i = 0; i < 1_000; i++) {
    const worker = router.fleet.add(`http://127.0.0.1:${1_000 + i}`);
    if (i % 10 !== 0) router.fleet.remove(worker as Exclude<typeof worker, string>);
  }
  deepEqual(
    router.fleet.workers.map(({ url }) => url),
    Array.from({ length: 100 }, (_, i) => `http://127.0.0.1:${1_000 + i * 10}`),
  );
  equal(new Set(router.fleet.workers.map(({ slot }) => slot)).size, 100);
  equal(Math.max(...router.fleet.workers.map(({ slot }) => slot)) <= 100, true);
});

test('close with a grace period: streams finish, new connections are refused', async (t) => {
  const { router, ask, client } = await startScene(t);
  const idle = await connectClient(t, router.url);
  const asked = await ask(HELLO);
  asked.beginStream();
  await client.read('\r\n\r\n');
  const closed = router.close(60_000);
  await idle.untilEnded();
  await connectClient(t, router.url).then(
    () => Promise.reject(new Error('it still listens')),
    () => {},
  );
  asked.connection.write(`${chunk('data: 1\n\n')}0\r\n\r\n`);
  await client.read('0\r\n\r\n');
  await client.untilEnded();
  await closed;
});

test('close at the end of its grace: what is left ends incomplete', async (t) => {
  const { router, ask, client } = await startScene(t);
  const asked = await ask(HELLO);
  asked.beginStream();
  await client.read('\r\n\r\n');
  await router.close(100);
  await client.untilEnded();
  equal(client.hasLastChunk, false);
  await asked.connection.untilEnded();
  await until('nothing is under way', () => router.pipeline.inFlight.size === 0);
});

test('a removed worker is shown as draining until its last request has ended, and then logged as drained', async (t) => {
  const lines: string[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(line) });
  const { router, ask, client } = await startScene(t, {}, { log });
  const asked = await ask(HELLO);
  const [worker] = router.fleet.workers;
  const get = async (path: string) => {
    const { status, text } = await send(t, router.url, request('GET', path));
    return [status, JSON.parse(text)] as [number, { workers: object[]; status: string; not_serving_because: string[] }];
  };
  equal((await send(t, router.url, request('DELETE', `/workers/${worker!.id}`))).status, 202);
  const [, shown] = await get(`/workers/${worker!.id}`);
  deepEqual([shown.status, shown.not_serving_because], ['draining', ['draining']]);
  equal((await get('/workers'))[1].workers.length, 1);
  deepEqual(router.fleet.workers, []);
  const hasLine = (msg: string): boolean => lines.some((line) => line.includes(`"${msg}"`));
  deepEqual([hasLine('worker removed'), hasLine('worker drained')], [true, false]);
  asked.answer('{}');
  await client.answer();
  await untilIdle(router);
  equal(hasLine('worker drained'), true);
  equal((await get(`/workers/${worker!.id}`))[0], 404);
  deepEqual((await get('/workers'))[1].workers, []);
});
