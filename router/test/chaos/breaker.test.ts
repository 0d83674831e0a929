import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { type Client, connectClient, request, send } from '../harness/client.ts';
import { type EngineRequest, answer, startEngine } from '../harness/engine.ts';
import type { RouterOptions } from '../harness/router.ts';
import { startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { type FaultScene, metricOf, startFaultScene, startInPlaceOf, untilQuiet, well, whenRead } from './scene.ts';

const GENERATE = request('POST', '/generate', '{"text":"x"}');
const sick = whenRead(({ connection }) => connection.write(answer(500, 'CUDA error')));

const WATCHED: RouterOptions = {
  disableHealthCheck: false,
  healthCheckIntervalSecs: 0.05,
  healthSuccessThreshold: 1,
};

const stateOf = ({ metric, engines }: FaultScene, at: number): Promise<number> =>
  metric(`turnout_worker_breaker_state{worker="${engines[at]!.url}"}`);

test('F23 health says 200, generation says 500: ejected, and no probe alone brings it back', async (t) => {
  const scene = await startFaultScene(t, [sick, well()], { ...WATCHED, cbTimeoutDurationSecs: 3_600 });
  const { router, engines } = scene;
  await until('both are known', () => router.fleet.workers.every(({ isHealthy }) => isHealthy));
  const client = await connectClient(t, router.url);
  const ask = async (): Promise<string> => {
    client.write(GENERATE);
    return (await client.answer()).text;
  };
  // Each 500 is followed by a try at the other engine, so no client sees one.
  await until('it is out', async () => {
    equal(await ask(), '"well"');
    return (await stateOf(scene, 0)) === 1;
  });
  deepEqual(
    router.fleet.eligible.map(({ url }) => url),
    [engines[1]!.url],
  );
  const [hits] = scene.hits();
  ok(hits! >= 5, `${hits} requests`);
  ok((await scene.metric('turnout_retries_total{failure="status"}')) >= 5);
  const checks = engines[0]!.questions.length;
  await until('it passes checks', () => engines[0]!.questions.length >= checks + 6);
  for (let i = 0; i < 10; i++) equal(await ask(), '"well"');
  equal(scene.hits()[0], hits, 'it gets no request');
  equal(await stateOf(scene, 0), 1);
  const { workers } = (await (await fetch(`${router.url}/workers`)).json()) as {
    workers: { url: string; is_healthy: boolean; not_serving_because: string[] }[];
  };
  const shown = workers.find(({ url }) => url === engines[0]!.url)!;
  deepEqual([shown.is_healthy, shown.not_serving_because], [true, ['breaker']]);
  await scene.untilQuiet();
});

test('F20 another program at the port, and no health checks: its requests take it out', async (t) => {
  const banner = await startEngine(t, { onConnection: ({ socket }) => socket.end('SSH-2.0-OpenSSH_9.2p1\r\n') });
  const engine = await startEngine(t, { onRequest: well() });
  const workerUrls = [banner.url, engine.url];
  const router = await startTestRouter(t, { workerUrls, policy: 'round_robin', cbFailureThreshold: 3 });
  const statuses: number[] = [];
  for (let i = 0; i < 12; i++) statuses.push((await send(t, router.url, GENERATE)).status);
  equal(statuses.filter((status) => status === 502).length, 3, statuses.join());
  deepEqual(statuses.slice(6), [200, 200, 200, 200, 200, 200]);
  equal(banner.connections.length, 3);
  equal(engine.requests.length, 9);
  await untilQuiet(router, [banner, engine]);
});

test('F25 five of eight fail at once: ejection stops at the cap, panic is counted, traffic goes on', async (t) => {
  const scene = await startFaultScene(t, [sick, sick, sick, sick, sick, well(), well(), well()], {
    disableRetries: true,
    cbFailureThreshold: 2,
    cbTimeoutDurationSecs: 3_600,
  });
  const { router } = scene;
  const client = await connectClient(t, router.url);
  const ask = async (count: number): Promise<number[]> => {
    const statuses: number[] = [];
    for (let i = 0; i < count; i++) {
      client.write(GENERATE);
      statuses.push((await client.answer()).status);
    }
    return statuses;
  };
  await ask(40);
  equal(router.fleet.eligible.length, 4, 'half of the fleet, and no more');
  ok((await scene.metric('turnout_breaker_panics_total')) >= 1);
  const before = scene.hits();
  const statuses = await ask(40);
  equal(statuses.filter((status) => status === 200).length, 30, 'three of the four that are left do work');
  const more = scene.hits().map((count, i) => count - before[i]!);
  deepEqual(
    more.toSorted((a, b) => a - b),
    [0, 0, 0, 0, 10, 10, 10, 10],
  );
  await scene.untilQuiet();
});

test('F25 the last engine is never ejected, however sick', async (t) => {
  const scene = await startFaultScene(t, [sick], { disableRetries: true, cbFailureThreshold: 1 });
  for (let i = 0; i < 5; i++) equal((await send(t, scene.router.url, GENERATE)).text, 'CUDA error');
  deepEqual(scene.hits(), [5]);
  await scene.untilQuiet();
});

/** Sends requests that stay at their engines. */
async function hold(t: Parameters<typeof connectClient>[0], url: string, count: number): Promise<Client[]> {
  return Promise.all(
    Array.from({ length: count }, async () => {
      const client = await connectClient(t, url);
      client.write(GENERATE);
      return client;
    }),
  );
}

/** An engine that failed until its breaker opened, is well now, and keeps what it gets; beside it one that keeps it too. */
async function afterEjection(t: Parameters<typeof connectClient>[0]) {
  const scene = await startFaultScene(t, [sick, () => {}], {
    policy: 'least_inflight',
    disableRetries: true,
    cbFailureThreshold: 3,
    cbTimeoutDurationSecs: 0.5,
  });
  const [returning, other] = scene.engines as [(typeof scene.engines)[0], (typeof scene.engines)[0]];
  other.onRequest = (asked) => asked.answer('{}');
  const client = await connectClient(t, scene.router.url);
  const failed = 3;
  // No more requests than it takes: it is open for half a second only.
  for (let i = 0; i < 20 && returning.requests.length < failed; i++) {
    client.write(GENERATE);
    await client.answer();
  }
  equal(returning.requests.length, failed);
  returning.onRequest = null;
  other.onRequest = null;
  const given = (): EngineRequest[] => returning.requests.slice(failed);
  await until('it may be tried', async () => (await stateOf(scene, 0)) === 2);
  return { ...scene, returning, other, given };
}

test('F26 an engine comes back: one request at a time tries it, two that work bring it back', async (t) => {
  const { given, other, ...scene } = await afterEjection(t);
  const taken = other.requests.length;
  const clients = await hold(t, scene.router.url, 6);
  await until('all are at an engine', () => given().length + other.requests.length - taken === 6);
  equal(given().length, 1, 'it gets one of six');
  given()[0]!.answer('{}');
  await until('the trial is over', () => scene.router.fleet.load(scene.router.fleet.workers[0]!) === 0);
  clients.push(...(await hold(t, scene.router.url, 3)));
  await until('all are at an engine', () => given().length + other.requests.length - taken === 9);
  equal(given().length, 2, 'and one of three');
  given()[1]!.answer('{}');
  await until('it is back', async () => (await stateOf(scene, 0)) === 0);
  for (const asked of other.requests.slice(taken)) asked.answer('{}');
  for (const client of clients) equal((await client.answer()).status, 200);
  await scene.untilQuiet();
});

test('F26 slow start: an engine that just came back does not get all new work at once', async (t) => {
  const { given, other, ...scene } = await afterEjection(t);
  const taken = other.requests.length;
  const clients = await hold(t, scene.router.url, 60);
  await until('all are at an engine', () => given().length + other.requests.length - taken === 60);
  for (let i = 0; i < 2; i++) {
    await until('it has one to do', async () => {
      if (given().length > i) return true;
      clients.push(...(await hold(t, scene.router.url, 1)));
      return false;
    });
    given()[i]!.answer('{}');
    await until('it is done', () => scene.router.fleet.load(scene.router.fleet.workers[0]!) === 0);
  }
  await until('it is back', async () => (await stateOf(scene, 0)) === 0);
  const [before, otherBefore] = [given().length, other.requests.length];
  // What it may have doubles every second: it is less than this for five seconds.
  clients.push(...(await hold(t, scene.router.url, 40)));
  await until('all are at an engine', () => given().length - before + other.requests.length - otherBefore === 40);
  ok(given().length - before < 40, 'though the other one has sixty to do, it does not get all forty');
  for (const asked of [...given().slice(2), ...other.requests.slice(taken)]) asked.answer('{}');
  for (const client of clients) equal((await client.answer()).status, 200);
  await scene.untilQuiet();
});

test('F21 the engine that is back first is the one whose breaker is open: it serves', async (t) => {
  const engines = [await startEngine(t), await startEngine(t)];
  const urls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, {
    ...WATCHED,
    workerUrls: urls,
    healthFailureThreshold: 1_000,
    cbFailureThreshold: 2,
    cbTimeoutDurationSecs: 3_600,
  });
  await until('both are known', () => router.fleet.workers.every(({ isHealthy }) => isHealthy));
  for (const engine of engines) engine.kill();
  for (let i = 0; i < 10; i++) equal((await send(t, router.url, GENERATE)).status, 503);
  const state = (url: string) => metricOf(router.metricsUrl, `turnout_worker_breaker_state{worker="${url}"}`);
  const states = await Promise.all(urls.map(state));
  deepEqual(
    states.toSorted((a, b) => a - b),
    [0, 1],
  );
  const engine = await startInPlaceOf(t, engines[states.indexOf(1)]!, { onRequest: well() });
  await until('it serves', async () => (await send(t, router.url, GENERATE)).status === 200);
  equal(engine.requests.length, 1);
  await untilQuiet(router, [engine]);
});
