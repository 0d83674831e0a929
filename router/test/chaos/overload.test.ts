import { deepEqual, equal, ok } from 'node:assert/strict';
import { once } from 'node:events';
import { type Socket, connect } from 'node:net';
import { type TestContext, test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { type EngineRequest, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { startTestRouter } from '../harness/router.ts';
import { until, within } from '../harness/within.ts';
import { preloaded, startRouterProcess } from './router-process.ts';
import { startFaultScene, untilQuiet, well } from './scene.ts';

const GENERATE = request('POST', '/generate', '{"text":"x"}');
const named = (name: string): string => request('POST', `/generate?${name}`, '{"text":"x"}');
const nameOf = ({ target }: EngineRequest): string => target.slice(target.indexOf('?') + 1);

/** A router that lets one request in at a time, and that one at the engine. */
async function full(t: TestContext, options: Parameters<typeof startFaultScene>[2]) {
  const scene = await startFaultScene(t, [() => {}], { maxConcurrentRequests: 1, ...options });
  const first = await connectClient(t, scene.router.url);
  first.write(named('first'));
  const [engine] = scene.engines;
  const asked = await engine!.next();
  const depth = () => scene.metric('turnout_queue_depth{reason="concurrency"}');
  const enqueue = async (name: string) => {
    const before = await depth();
    const client = await connectClient(t, scene.router.url);
    client.write(named(name));
    await until(`${name} is queued`, async () => (await depth()) === before + 1);
    return client;
  };
  return { ...scene, first, asked, engine: engine!, depth, enqueue };
}

test('F30 a client that leaves while it is queued: it leaves the queue, and no engine sees its request', async (t) => {
  const { first, asked, engine, depth, enqueue, ...scene } = await full(t, { queueSize: 2 });
  const leaving = await enqueue('leaving');
  const staying = await enqueue('staying');
  leaving.reset();
  await until('it has left the queue', async () => (await depth()) === 1);
  // Its place is free again.
  const last = await enqueue('last');
  asked.answer('1');
  equal((await first.answer()).text, '1');
  for (const client of [staying, last]) {
    (await engine.next()).answer('2');
    equal((await client.answer()).text, '2');
  }
  deepEqual(engine.requests.map(nameOf), ['first', 'staying', 'last']);
  equal(await depth(), 0);
  equal(await scene.metric('turnout_requests_total{outcome="client_left"}'), 1);
  await scene.untilQuiet();
});

test('F43 limit and queue full: 429 with retry-after at once; those that wait keep their order', async (t) => {
  const { first, asked, engine, enqueue, ...scene } = await full(t, { queueSize: 4 });
  const waiting = [];
  for (const name of ['a', 'b', 'c', 'd']) waiting.push(await enqueue(name));
  for (let i = 0; i < 10; i++) {
    const got = await send(t, scene.router.url, named(`refused${i}`));
    deepEqual([got.status, got.get('x-turnout-error')], [429, 'too_many_requests']);
    ok(Number(got.get('retry-after')) >= 1);
  }
  equal(engine.requests.length, 1);
  asked.answer('first');
  equal((await first.answer()).text, 'first');
  for (const client of waiting) {
    const next = await engine.next();
    next.answer(nameOf(next));
    ok((await client.answer()).status === 200);
  }
  deepEqual(engine.requests.map(nameOf), ['first', 'a', 'b', 'c', 'd']);
  equal(await scene.metric('turnout_shed_total{reason="queue_full"}'), 10);
  await scene.untilQuiet();
});

test('F43 the limit holds until the last byte of an answer', async (t) => {
  const { first, asked, engine, enqueue, ...scene } = await full(t, {});
  const waiting = await enqueue('waiting');
  asked.beginStream();
  for (let i = 0; i < 3; i++) {
    asked.connection.write(chunk(`data: ${i}\n\n`));
    await first.read(chunk(`data: ${i}\n\n`));
    equal((await send(t, scene.router.url, request('GET', '/health'))).status, 200, 'its own endpoints know no limit');
  }
  equal(engine.requests.length, 1);
  asked.connection.write('0\r\n\r\n');
  await first.read('0\r\n\r\n');
  (await engine.next()).answer('now');
  equal((await waiting.answer()).text, 'now');
  await scene.untilQuiet();
});

test('F44 a request that waits too long: 503, and no engine sees it later', async (t) => {
  const { first, asked, engine, depth, ...scene } = await full(t, { queueTimeoutSecs: 0.3 });
  const late = await connectClient(t, scene.router.url);
  late.write(named('late'));
  const got = await late.answer();
  deepEqual([got.status, got.get('x-turnout-error')], [503, 'queue_timeout']);
  ok(Number(got.get('retry-after')) >= 1);
  equal(await depth(), 0);
  asked.answer('1');
  equal((await first.answer()).text, '1');
  late.write(named('again'));
  (await engine.next()).answer('2');
  equal((await late.answer()).text, '2');
  deepEqual(engine.requests.map(nameOf), ['first', 'again']);
  await scene.untilQuiet();
});

test('F39 --max-connections: one more is closed as it comes; those that are in are served, and so is the next after one left', async (t) => {
  const engine = await startEngine(t, { onRequest: well() });
  const router = await startTestRouter(t, { workerUrls: [engine.url], maxConnections: 3 });
  const inside = [];
  for (let i = 0; i < 3; i++) {
    const client = await connectClient(t, router.url);
    client.write(GENERATE);
    equal((await client.answer()).status, 200);
    inside.push(client);
  }
  const { hostname, port } = new URL(router.url);
  for (let i = 0; i < 5; i++) {
    const socket: Socket = connect(Number(port), hostname);
    t.after(() => socket.destroy());
    socket.on('error', () => {});
    socket.write(GENERATE);
    await within(once(socket, 'close'), 'it is closed');
    equal(socket.bytesRead, 0);
  }
  for (const client of inside) {
    client.write(GENERATE);
    equal((await client.answer()).status, 200);
  }
  equal(engine.requests.length, 6);
  const text = await (await fetch(router.metricsUrl)).text();
  ok(text.includes('turnout_refused_connections_total{reason="max_connections"} 5\n'));
  inside[0]!.reset();
  await until('its place is free', () =>
    connectClient(t, router.url).then(async (client) => {
      client.write(GENERATE);
      return (await client.answerOrNone())?.status === 200;
    }),
  );
  await untilQuiet(router, [engine]);
});

test('F39 --max-connections-per-client: one address can not take the places of another', async (t) => {
  const engine = await startEngine(t, { onRequest: well() });
  const router = await startTestRouter(t, { workerUrls: [engine.url], maxConnectionsPerClient: 2 });
  const { hostname, port } = new URL(router.url);
  const open = async (localAddress: string): Promise<boolean> => {
    const socket = connect({ port: Number(port), host: hostname, localAddress });
    t.after(() => socket.destroy());
    socket.on('error', () => {});
    socket.write(GENERATE);
    await Promise.race([once(socket, 'data'), once(socket, 'close')]);
    return socket.bytesRead > 0;
  };
  const served = [];
  for (let i = 0; i < 4; i++) served.push(await open('127.0.0.8'));
  for (let i = 0; i < 2; i++) served.push(await open('127.0.0.9'));
  deepEqual(served, [true, true, false, false, true, true]);
  equal(engine.requests.length, 4);
  await untilQuiet(router, [engine]);
});

/** Fills the heap on SIGUSR2, nearly, and lets go of it at the next one. */
const HOG = `
  import v8 from 'node:v8';
  import vm from 'node:vm';
  v8.setFlagsFromString('--expose-gc');
  const gc = vm.runInNewContext('gc');
  const LIMIT = 192 * 1048576;
  let hog = null;
  process.on('SIGUSR2', () => {
    if (hog === null) {
      hog = [];
      while (v8.getHeapStatistics().used_heap_size < 0.93 * LIMIT) hog.push(new Array(131072).fill(1.5));
      console.log('heap is full.');
    } else {
      hog = [];
      gc();
      console.log('heap is empty.');
    }
  });`;

test('F46 a heap near its limit: new work is refused, open streams go on, and all is well again after', async (t) => {
  const engine = await startEngine(t);
  const env = { NODE_OPTIONS: `--max-old-space-size=192 ${preloaded(HOG)['NODE_OPTIONS']}` };
  const router = await startRouterProcess(t, [engine.url], [], { env });
  const streaming = await connectClient(t, router.url);
  streaming.write(GENERATE);
  const asked = await engine.next();
  asked.beginStream();
  asked.connection.write(chunk('data: 1\n\n'));
  await streaming.read('data: 1\n\n');
  engine.onRequest = well();
  router.child.kill('SIGUSR2');
  await router.says(/heap is full\./);
  let refusals = 0;
  await until('new work is refused', async () => {
    const got = await send(t, router.url, GENERATE);
    if (got.status === 200) return false;
    deepEqual([got.status, got.get('x-turnout-error')], [503, 'overloaded']);
    ok(Number(got.get('retry-after')) >= 1);
    return ++refusals === 3;
  });
  const hits = engine.requests.length;
  asked.connection.write(chunk('data: 2\n\n'));
  await streaming.read('data: 2\n\n');
  equal((await send(t, router.url, request('GET', '/health'))).status, 200);
  equal(engine.requests.length, hits, 'what is refused reaches no engine');
  router.child.kill('SIGUSR2');
  await router.says(/heap is empty\./);
  await until('work is taken again', async () => (await send(t, router.url, GENERATE)).status === 200);
  asked.connection.write('0\r\n\r\n');
  await streaming.read('0\r\n\r\n');
  ok((await router.metric('turnout_shed_total{reason="heap"}')) >= 3);
  await router.untilIdle();
});
