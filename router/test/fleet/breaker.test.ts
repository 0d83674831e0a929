import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { type Engine, type EngineRequest, STREAM_HEAD, answer, deadUrl, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { type RouterOptions, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const GENERATE = request('POST', '/generate', '{}');
const NO_RETRIES: RouterOptions = { disableRetries: true, policy: 'round_robin' };

/** An engine that answers with whatever `state.status` is. */
async function engineOf(t: TestContext, status = 200) {
  const state = { status };
  const onRequest = (asked: EngineRequest): void =>
    void asked.payload().then(() => asked.connection.write(answer(state.status, '{}')));
  return { engine: await startEngine(t, { onRequest }), state };
}

async function statuses(t: TestContext, url: string, count: number): Promise<number[]> {
  const all: number[] = [];
  for (let i = 0; i < count; i++) all.push((await send(t, url, GENERATE)).status);
  return all;
}

test('an engine that answers its health path and fails requests is taken out, and stays out', async (t) => {
  const sick = await engineOf(t, 500);
  const well = await engineOf(t);
  const router = await startTestRouter(t, {
    ...NO_RETRIES,
    workerUrls: [sick.engine.url, well.engine.url],
    disableHealthCheck: false,
    healthCheckIntervalSecs: 0.01,
  });
  const [worker] = router.fleet.workers;
  equal((await statuses(t, router.url, 10)).filter((status) => status === 500).length, 5);
  deepEqual(worker!.reasonNames(), ['breaker']);
  const before = sick.engine.questions.length;
  await until('it passed health checks since', () => sick.engine.questions.length > before + 5);
  deepEqual(await statuses(t, router.url, 10), Array(10).fill(200));
  equal(sick.engine.requests.length, 5);
});

test('open, one request at a time, closed', async (t) => {
  const sick = await engineOf(t, 500);
  const well = await engineOf(t);
  const router = await startTestRouter(t, {
    ...NO_RETRIES,
    workerUrls: [sick.engine.url, well.engine.url],
    cbTimeoutDurationSecs: 0.05,
  });
  const [worker] = router.fleet.workers;
  // No more requests than it takes: it is open for 50 ms only.
  while (sick.engine.requests.length < 5) await send(t, router.url, GENERATE);
  sick.engine.onRequest = null;
  await until('it is on trial', () => worker!.isOnTrial && router.fleet.isEligible(worker!));
  // Ten at once: one of them is the trial, and as long as it lasts no other gets there.
  const clients = await Promise.all(Array.from({ length: 10 }, () => connectClient(t, router.url)));
  for (const client of clients) client.write(GENERATE);
  await until('nine are answered', () => clients.filter((client) => client.received.length > 0).length === 9);
  equal(sick.engine.requests.length, 6);
  sick.engine.requests[5]!.answer('"one"');
  await until('all are answered', () => clients.every((client) => client.received.length > 0));
  equal(router.fleet.isEligible(worker!), true);
  sick.engine.onRequest = (asked) => asked.answer('"two"');
  for (let i = 0; worker!.isOnTrial; i++) {
    ok(i < 10);
    await send(t, router.url, GENERATE);
  }
  equal(sick.engine.requests.length, 7);
  await untilIdle(router);
});

test('4xx are no failures, and neither are clients that leave', async (t) => {
  const { engine, state } = await engineOf(t, 400);
  const router = await startTestRouter(t, {
    ...NO_RETRIES,
    workerUrls: [engine.url, await deadUrl()],
    maxEjectedPercent: 100,
  });
  await until('the dead one is out', async () => {
    await send(t, router.url, GENERATE);
    return router.fleet.eligible.length === 1;
  });
  for (const status of [400, 404, 408, 422, 429, 499, 501]) {
    state.status = status;
    deepEqual(await statuses(t, router.url, 6), Array(6).fill(status));
  }
  engine.onRequest = (asked) => asked.beginStream();
  for (let i = 0; i < 6; i++) {
    const client = await connectClient(t, router.url);
    client.write(GENERATE);
    await client.read('\r\n\r\n');
    client.reset();
    await untilIdle(router);
  }
  equal(router.fleet.eligible.length, 1);
});

for (const [how, fail] of [
  ['broken connections', (asked: EngineRequest) => asked.connection.reset()],
  ['answers that are no HTTP', (asked: EngineRequest) => asked.connection.write('SSH-2.0-OpenSSH\r\n\r\n')],
  [
    'streams that break off',
    (asked: EngineRequest) => {
      asked.connection.write(STREAM_HEAD + chunk('data: 1\n\n'));
      setImmediate(() => asked.connection.reset());
    },
  ],
] as const) {
  test(`${how} are failures`, async (t) => {
    const sick = await startEngine(t, { onRequest: (asked) => void asked.payload().then(() => fail(asked)) });
    const { engine } = await engineOf(t);
    const router = await startTestRouter(t, { ...NO_RETRIES, workerUrls: [sick.url, engine.url] });
    for (let i = 0; i < 10; i++) {
      const client = await connectClient(t, router.url);
      client.write(GENERATE);
      await untilIdleAgain(router, i + 1);
    }
    deepEqual(router.fleet.workers[0]!.reasonNames(), ['breaker']);
    equal(sick.requests.length, 5);
  });
}

async function untilIdleAgain(router: Awaited<ReturnType<typeof startTestRouter>>, count: number): Promise<void> {
  await until(`${count} exchanges are over`, async () => {
    const metrics = await (await fetch(router.metricsUrl)).text();
    const ended = [...metrics.matchAll(/^turnout_requests_total\{.*\} (\d+)$/gm)];
    return ended.reduce((sum, [, n]) => sum + Number(n), 0) === count;
  });
}

test('an engine that is back is in again after two health checks, not after 30 s', async (t) => {
  const first = await engineOf(t);
  const { url } = first.engine;
  const { engine } = await engineOf(t);
  const router = await startTestRouter(t, {
    policy: 'round_robin',
    workerUrls: [url, engine.url],
    disableHealthCheck: false,
    healthCheckIntervalSecs: 0.02,
    healthFailureThreshold: 1_000,
  });
  const [worker] = router.fleet.workers;
  await until('it is known', () => worker!.engine !== null);
  first.engine.kill();
  await until('its breaker is open', async () => {
    await send(t, router.url, GENERATE);
    return worker!.reasonNames().includes('breaker');
  });
  await startEngine(t, { port: Number(new URL(url).port) });
  await until('it is back', () => router.fleet.isEligible(worker!));
});

test('every breaker open: 503 at once, with the time after which one is tried again', async (t) => {
  const engines = [await engineOf(t, 500), await engineOf(t, 500)];
  const workerUrls = engines.map(({ engine }) => engine.url);
  const router = await startTestRouter(t, { ...NO_RETRIES, workerUrls, maxEjectedPercent: 100 });
  await statuses(t, router.url, 10);
  const got = await send(t, router.url, GENERATE);
  deepEqual([got.status, got.get('x-turnout-error')], [503, 'no_available_workers']);
  const secs = Number(got.get('retry-after'));
  ok(secs > 20 && secs <= 30, `${secs}`);
  match(got.text, /2 ejected by the circuit breaker/);
});

test('five of eight fail at once: four are taken out, traffic goes on, and it is said', async (t) => {
  const engines = await Promise.all(Array.from({ length: 8 }, (_, i) => engineOf(t, i < 5 ? 500 : 200)));
  const workerUrls = engines.map(({ engine }) => engine.url);
  const router = await startTestRouter(t, { ...NO_RETRIES, workerUrls });
  await statuses(t, router.url, 60);
  equal(router.fleet.eligible.length, 4);
  const metrics = await (await fetch(router.metricsUrl)).text();
  ok(Number(/turnout_breaker_panics_total (\d+)/.exec(metrics)?.[1]) > 0);
  equal([...metrics.matchAll(/turnout_worker_breaker_state\{.*\} 1/g)].length, 4);
});

test('a user forces a breaker, and gives it back', async (t) => {
  const { engine } = await engineOf(t);
  const other = await engineOf(t);
  const router = await startTestRouter(t, { ...NO_RETRIES, workerUrls: [engine.url, other.engine.url] });
  const { id } = router.fleet.workers[0]!;
  const force = async (state: string) => {
    const body = JSON.stringify({ state });
    return fetch(`${router.url}/workers/${id}/breaker`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    });
  };
  const forced = (await (await force('open')).json()) as { circuit_breaker: string; not_serving_because: string[] };
  deepEqual([forced.circuit_breaker, forced.not_serving_because], ['open', ['breaker']]);
  await statuses(t, router.url, 4);
  equal(engine.requests.length, 0);
  equal((await force('auto')).status, 200);
  await statuses(t, router.url, 4);
  equal(engine.requests.length, 2);
  equal((await force('half')).status, 400);
  const unknownId = '00000000-0000-4000-8000-000000000000';
  equal(
    (
      await fetch(`${router.url}/workers/${unknownId}/breaker`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{}',
      })
    ).status,
    404,
  );
  equal(
    (
      await fetch(`${router.url}/workers/none/breaker`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{}',
      })
    ).status,
    400,
  );
});

test('--disable-circuit-breaker: failures eject no worker', async (t) => {
  const engines = [await engineOf(t, 500), await engineOf(t, 200)];
  const workerUrls = engines.map(({ engine }: { engine: Engine }) => engine.url);
  const router = await startTestRouter(t, { ...NO_RETRIES, workerUrls, disableCircuitBreaker: true });
  await statuses(t, router.url, 20);
  equal(router.fleet.eligible.length, 2);
});
