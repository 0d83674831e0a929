import { deepEqual, equal, ok } from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { type Engine, type EngineConnection, answer, deadUrl, startEngine } from '../harness/engine.ts';
import { stoppedClock } from '../harness/fake-time.ts';
import { startEngines } from '../harness/fleet.ts';
import { HELLO, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { startFrozen } from './frozen.ts';
import { needsProc } from './router-process.ts';
import { metricOf, startFaultScene, startInPlaceOf, untilQuiet, well, whenRead } from './scene.ts';

const BODY = '{"prompt":"keep me","n":12345678901234567890}';
const GENERATE = request('POST', '/generate', BODY);

const payloadOf = async (engine: Engine, at = 0): Promise<string> => (await engine.requests[at]!.payload()).toString();

test('F01 connection refused: another engine gets the same request, and the dead one is marked', async (t) => {
  const living = await startEngine(t, { onRequest: well() });
  const dying = await startEngine(t, { onRequest: well() });
  const router = await startTestRouter(t, {
    workerUrls: [dying.url, living.url],
    policy: 'round_robin',
    disableHealthCheck: false,
    healthCheckIntervalSecs: 0.05,
    healthFailureThreshold: 3,
  });
  await until('both are known', () => router.fleet.workers.every(({ isHealthy }) => isHealthy));
  dying.kill();
  for (let i = 0; i < 2; i++) equal((await send(t, router.url, GENERATE)).text, '"well"');
  deepEqual([living.requests.length, dying.requests.length], [2, 0]);
  equal(await payloadOf(living), BODY);
  await until('the dead one is marked', () => router.fleet.eligible.length === 1);
  const attempts = `turnout_worker_failed_attempts_total{worker="${dying.url}"}`;
  const before = await metricOf(router.metricsUrl, attempts);
  ok(before >= 1);
  for (let i = 0; i < 4; i++) equal((await send(t, router.url, GENERATE)).status, 200);
  equal(await metricOf(router.metricsUrl, attempts), before, 'it is tried no more');
  await untilQuiet(router, [living, dying]);
});

test('F02 a connect that hangs: its own timer, then another engine', { skip: needsProc }, async (t) => {
  const frozen = await startFrozen(t);
  const engine = await startEngine(t, { onRequest: well() });
  const router = await startTestRouter(t, {
    workerUrls: [frozen, engine.url],
    policy: 'round_robin',
    connectTimeoutMs: 300,
    requestTimeoutSecs: 60,
  });
  equal((await send(t, router.url, GENERATE)).text, '"well"');
  equal(engine.requests.length, 1);
  equal(await payloadOf(engine), BODY);
  equal(await metricOf(router.metricsUrl, 'turnout_retries_total{failure="connect"}'), 1);
  equal(await metricOf(router.metricsUrl, 'turnout_errors_total{code="request_timeout"}'), 0);
  equal(router.fleet.get(frozen)!.pool.openCount, 0);
  await untilQuiet(router, [engine]);
});

test(
  'F02 every connect hangs: 503 at the connect timer, not at the timer of the request',
  { skip: needsProc },
  async (t) => {
    const frozen = await startFrozen(t);
    const router = await startTestRouter(t, { workerUrls: [frozen], connectTimeoutMs: 200, requestTimeoutSecs: 60 });
    const got = await send(t, router.url, GENERATE);
    deepEqual([got.status, got.get('x-turnout-error')], [503, 'no_available_workers']);
    await untilQuiet(router, []);
  },
);

test('F03 accepted and closed at once: tried elsewhere, and counted', async (t) => {
  const closing = await startEngine(t, { onConnection: ({ socket }) => socket.destroy() });
  const engine = await startEngine(t, { onRequest: well() });
  const router = await startTestRouter(t, { workerUrls: [closing.url, engine.url], policy: 'round_robin' });
  equal((await send(t, router.url, GENERATE)).text, '"well"');
  deepEqual([closing.connections.length, closing.requests.length, engine.requests.length], [1, 0, 1]);
  equal(await payloadOf(engine), BODY);
  const [connect, reset] = await Promise.all(
    ['connect', 'reset'].map((how) => metricOf(router.metricsUrl, `turnout_retries_total{failure="${how}"}`)),
  );
  equal(connect! + reset!, 1);
  await untilQuiet(router, [closing, engine]);
});

for (const how of ['reset', 'end'] as const) {
  test(`F04 a reused idle connection that closes (${how}) under the request: once more on a fresh one`, async (t) => {
    stoppedClock(t);
    const scene = await startFaultScene(t, [
      (asked) => {
        if (asked.connection.requests.length > 1) asked.connection[how]();
        else void asked.payload().then((payload) => asked.answer(payload.toString() || '"first"'));
      },
    ]);
    const { router, engines } = scene;
    const client = await connectClient(t, router.url);
    client.write(HELLO);
    equal((await client.answer()).text, '"first"');
    client.write(GENERATE);
    const got = await client.answer();
    deepEqual([got.status, got.text], [200, BODY]);
    // The first request, the one on the closed connection, and that one again.
    deepEqual(scene.hits(), [3]);
    deepEqual(
      engines[0]!.connections.map(({ requests }) => requests.length),
      [2, 1],
    );
    equal(await scene.metric('turnout_retries_total{failure="stale"}'), 1);
    await scene.untilQuiet();
  });
}

test('F05 reset with the whole request read and no byte answered: another engine, two hits in all', async (t) => {
  const reset = whenRead(({ connection }) => connection.reset());
  const scene = await startFaultScene(t, [reset, well(), well()]);
  const got = await send(t, scene.router.url, GENERATE);
  deepEqual([got.status, got.text], [200, '"well"']);
  deepEqual(scene.hits(), [1, 1, 0]);
  equal(await payloadOf(scene.engines[1]!), BODY);
  equal(await scene.metric('turnout_retries_total{failure="reset"}'), 1);
  await scene.untilQuiet();
});

test('F05 engines that all reset: two hits in all, then 502', async (t) => {
  const reset = whenRead(({ connection }) => connection.reset());
  const scene = await startFaultScene(t, [reset, reset, reset, reset]);
  const got = await send(t, scene.router.url, GENERATE);
  deepEqual([got.status, got.get('x-turnout-error')], [502, 'upstream_reset']);
  equal(
    scene.hits().reduce((sum, count) => sum + count),
    2,
  );
  await scene.untilQuiet();
});

test('F05 with retries off: 502, and one hit', async (t) => {
  const reset = whenRead(({ connection }) => connection.reset());
  const scene = await startFaultScene(t, [reset, well()], { disableRetries: true });
  const got = await send(t, scene.router.url, GENERATE);
  deepEqual([got.status, got.get('x-turnout-error')], [502, 'upstream_reset']);
  deepEqual(scene.hits(), [1, 0]);
  await scene.untilQuiet();
});

test('F05 a request that kills its engine, over reused connections: two engines at most', async (t) => {
  const engines = await startEngines(t, 5);
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url), policy: 'round_robin' });
  const client = await connectClient(t, router.url);
  for (const [i] of engines.entries()) {
    client.write(HELLO);
    equal((await client.answer()).text, String(i));
  }
  for (const engine of engines) engine.onRequest = whenRead(() => engine.kill());
  client.write(GENERATE);
  equal((await client.answer()).status, 502);
  const killed = engines.filter(({ requests }) => requests.length > 1).length;
  ok(killed <= 2, `${killed} engines are dead`);
  await untilQuiet(router, engines);
});

test('F14 an engine that half-closes after its response: the connection is not kept, and no client sees an error', async (t) => {
  const scene = await startFaultScene(t, [
    ({ connection }) => connection.socket.end(answer(200, 'ok', ['connection: keep-alive'])),
  ]);
  const client = await connectClient(t, scene.router.url);
  for (let i = 1; i <= 5; i++) {
    client.write(request('POST', '/generate', String(i)));
    const got = await client.answer();
    deepEqual([got.status, got.text], [200, 'ok']);
    await until('the connection is let go', () => scene.router.fleet.workers[0]!.pool.openCount === 0);
  }
  deepEqual(
    scene.engines[0]!.connections.map(({ requests }) => requests.length),
    [1, 1, 1, 1, 1],
  );
  equal(await scene.metric(`turnout_worker_failed_attempts_total{worker="${scene.engines[0]!.url}"}`), 0);
  await scene.untilQuiet();
});

const FORGED = answer(200, '"forged"');

test('F15 bytes behind a complete answer: connection discarded, the next client gets its own answer', async (t) => {
  const scene = await startFaultScene(t, [
    ({ connection, target }) => connection.write(answer(200, target) + (target === '/first' ? FORGED : '')),
  ]);
  equal((await send(t, scene.router.url, request('GET', '/first'))).text, '/first');
  const [first] = scene.engines[0]!.connections as [EngineConnection];
  await first.untilEnded();
  for (const target of ['/second', '/third']) {
    equal((await send(t, scene.router.url, request('GET', target))).text, target);
  }
  equal(first.requests.length, 1);
  await scene.untilQuiet();
});

/** A connection with one exchange behind it, idle in the router's pool; and what the next request gets. */
async function idleConnection(t: Parameters<typeof startFaultScene>[0]) {
  const scene = await startFaultScene(t, [(asked) => asked.answer(JSON.stringify(asked.target))]);
  const ask = async (target: string) =>
    JSON.parse((await send(t, scene.router.url, request('GET', target))).text) as string;
  equal(await ask('/first'), '/first');
  const [connection] = scene.engines[0]!.connections;
  return { ...scene, connection: connection!, ask };
}

test('F16 a response without a request, on an idle connection: discarded before the connection is used again', async (t) => {
  const { connection, ask, engines, untilQuiet: quiet } = await idleConnection(t);
  connection.write(FORGED);
  await connection.untilEnded();
  equal(await ask('/second'), '/second');
  deepEqual(
    engines[0]!.connections.map(({ requests }) => requests.length),
    [1, 1],
  );
  await quiet();
});

test('F20 the port belongs to another program now: 502, then the worker is out and the others serve', async (t) => {
  const taken = await startEngine(t, { onRequest: well() });
  const router = await startTestRouter(t, {
    workerUrls: [taken.url],
    policy: 'round_robin',
    disableHealthCheck: false,
    healthCheckIntervalSecs: 3_600,
    healthFailureThreshold: 1,
  });
  const [worker] = router.fleet.workers;
  await until('it is known', () => worker!.isHealthy);
  equal((await send(t, router.url, GENERATE)).status, 200);
  const banner = await startInPlaceOf(t, taken, {
    onConnection: ({ socket }) => socket.end('SSH-2.0-OpenSSH_9.2p1\r\n'),
  });
  const got = await send(t, router.url, GENERATE);
  deepEqual([got.status, got.get('x-turnout-error')], [502, 'upstream_bad_answer']);
  equal(got.text.includes('SSH'), false);
  await until('it is out', () => !worker!.isHealthy && router.fleet.eligible.length === 0);
  const engine = await startEngine(t, { onRequest: well() });
  router.fleet.add(engine.url);
  await until('the other one is in', () => router.fleet.eligible.length === 1);
  for (let i = 0; i < 4; i++) equal((await send(t, router.url, GENERATE)).text, '"well"');
  equal(engine.requests.length, 4);
  equal(banner.requests.length, 1, 'one request only met the other program');
  await untilQuiet(router, [engine]);
});

test('F21 all engines down: 503 with retry-after at once, and service without a restart when one is back', async (t) => {
  const urls = await Promise.all([deadUrl(), deadUrl(), deadUrl()]);
  const router = await startTestRouter(t, { workerUrls: urls });
  for (let i = 0; i < 3; i++) {
    const got = await send(t, router.url, GENERATE);
    deepEqual([got.status, got.get('x-turnout-error')], [503, 'no_available_workers']);
    ok(Number(got.get('retry-after')) >= 1);
    equal(/127\.|ECONN/.test(got.text), false, 'addresses of engines stay inside');
  }
  const back = await startEngine(t, { onRequest: well(), port: Number(new URL(urls[1]).port) });
  await until('it serves again', async () => (await send(t, router.url, GENERATE)).status === 200);
  equal(back.requests.length, 1);
  equal(await payloadOf(back), BODY);
  await untilQuiet(router, [back]);
});

test('TCP asks the host of a silent engine for a sign of life', { skip: needsProc }, async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  const client = await connectClient(t, router.url);
  client.write(GENERATE);
  await engine.next();
  const port = Number(new URL(engine.url).port).toString(16).toUpperCase().padStart(4, '0');
  // Columns of the kernel: number, local address, remote address, state, queues, timer; 02 is the timer of keep-alive.
  const connection = new RegExp(String.raw`^\s*\d+: \S+ \S+:${port} 01 \S+ (\d\d):(\S+)`, 'm');
  await until('its timer runs', () => connection.exec(readFileSync('/proc/net/tcp', 'utf8'))?.[1] === '02');
  const [, , ticks] = connection.exec(readFileSync('/proc/net/tcp', 'utf8'))!;
  ok(Number.parseInt(ticks!, 16) <= 6_000, 'at most 60 s in hundredths');
});
