import { deepEqual, equal, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { type ControlAnswer, answer, deadUrl, startEngine } from '../harness/engine.ts';
import { HELLO, type RouterOptions, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const FAST: RouterOptions = {
  disableHealthCheck: false,
  healthCheckIntervalSecs: 0.02,
  healthCheckTimeoutSecs: 0.3,
  healthFailureThreshold: 3,
  healthSuccessThreshold: 2,
};

const sick = answer(503, 'sick');

/** Counts the health checks and answers them as `state` says. */
async function patient(t: TestContext, options: { port?: number; more?: ControlAnswer } = {}) {
  const state = { isWell: true, checks: 0 };
  const control: ControlAnswer = (path) => {
    if (path !== '/health') return options.more?.(path) ?? answer(404, '');
    state.checks++;
    return state.isWell ? answer(200, '') : sick;
  };
  const engine = await startEngine(t, { control, port: options.port ?? 0 });
  engine.onRequest = (asked) => asked.answer('"ok"');
  return { engine, state };
}

test('quarantine comes after just N failed checks in a row, readmission after M good ones', async (t) => {
  const { engine, state } = await patient(t);
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
  const [worker] = router.fleet.workers;
  await until('it is known', () => worker!.isHealthy && worker!.engine !== null);
  const events: [boolean, number][] = [];
  let from = 0;
  router.fleet.onEvent((_event, { isHealthy }) => events.push([isHealthy, state.checks - from]));
  from = state.checks;
  state.isWell = false;
  await until('it is in quarantine', () => !worker!.isHealthy);
  equal((await send(t, router.url, HELLO)).status, 503);
  ok(events[0]![1] >= 3 && events[0]![1] <= 4, `in quarantine after ${events[0]![1]} checks`);
  from = state.checks;
  state.isWell = true;
  await until('it is back', () => worker!.isHealthy);
  deepEqual(events.at(-1), [true, 2]);
  equal((await send(t, router.url, HELLO)).status, 200);
});

test('failures that are not in a row do not add up', async (t) => {
  const { engine, state } = await patient(t);
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
  const [worker] = router.fleet.workers;
  await until('it is known', () => worker!.engine !== null);
  let count = 0;
  engine.control = (path) => {
    if (path !== '/health') return answer(404, '');
    state.checks++;
    return ++count % 3 === 0 ? answer(200, '') : sick;
  };
  let hasLeft = false;
  router.fleet.onEvent((_e, { isHealthy }) => (hasLeft ||= !isHealthy));
  await until('twelve more checks are done', () => count >= 12, 15_000);
  equal(hasLeft, false);
});

test('a health path that hangs counts as a failure, at its timer', async (t) => {
  const { engine } = await patient(t);
  const router = await startTestRouter(t, { ...FAST, healthCheckTimeoutSecs: 0.1, workerUrls: [engine.url] });
  const [worker] = router.fleet.workers;
  await until('it is known', () => worker!.engine !== null);
  engine.control = () => null;
  await until('it is in quarantine', () => !worker!.isHealthy);
});

test('a worker that was never well gets no benefit of the doubt: one failure is enough', async (t) => {
  const { engine, state } = await patient(t);
  state.isWell = false;
  const router = await startTestRouter(t, { ...FAST, healthFailureThreshold: 50, workerUrls: [engine.url] });
  await until('it is in quarantine', () => router.fleet.eligible.length === 0);
  ok(state.checks <= 2);
});

test('a worker that is down at the start serves once it is up', async (t) => {
  const url = await deadUrl();
  const router = await startTestRouter(t, { ...FAST, workerUrls: [url] });
  await until('it is in quarantine', () => router.fleet.eligible.length === 0);
  await patient(t, { port: Number(new URL(url).port) });
  await until('it serves', () => router.fleet.eligible.length === 1);
  equal((await send(t, router.url, HELLO)).status, 200);
});

test('a request that finds its worker dead has it looked at at once, and the others serve', async (t) => {
  const dying = await patient(t);
  const well = await patient(t);
  const router = await startTestRouter(t, {
    ...FAST,
    healthCheckIntervalSecs: 3_600,
    healthFailureThreshold: 1,
    policy: 'round_robin',
    workerUrls: [dying.engine.url, well.engine.url],
  });
  await until('both are known', () => router.fleet.workers.every(({ engine }) => engine !== null));
  dying.engine.kill();
  for (let i = 0; i < 4; i++) equal((await send(t, router.url, HELLO)).status, 200);
  await until('it is in quarantine', () => router.fleet.eligible.length === 1);
});

test('a sick engine\u2019s own 500s pass and do not take it out of routing by themselves', async (t) => {
  const { engine } = await patient(t);
  engine.onRequest = ({ connection }) => connection.write(answer(500, 'mine'));
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
  for (let i = 0; i < 3; i++) equal((await send(t, router.url, HELLO)).text, 'mine');
  equal(router.fleet.eligible.length, 1);
});

test('a paused SGLang engine (health fails, /ready passes) stays in', async (t) => {
  const more: ControlAnswer = (path) =>
    path === '/model_info'
      ? answer(200, '{"model_path":"m","weight_version":"1"}')
      : path === '/ready'
        ? answer(200, '')
        : answer(404, '');
  const { engine, state } = await patient(t, { more });
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
  const [worker] = router.fleet.workers;
  await until('it is known', () => worker!.engine === 'sglang');
  state.isWell = false;
  const from = state.checks;
  await until('five more checks are done', () => state.checks > from + 5, 15_000);
  equal(worker!.isHealthy, true);
});

test('--disable-health-check: nobody is asked anything', async (t) => {
  const { engine, state } = await patient(t);
  const router = await startTestRouter(t, { ...FAST, disableHealthCheck: true, workerUrls: [engine.url] });
  for (let i = 0; i < 3; i++) equal((await send(t, router.url, HELLO)).status, 200);
  equal(state.checks, 0);
  equal((await send(t, router.url, request('GET', '/readiness'))).status, 200);
});

test('a removed worker is asked no more', async (t) => {
  const { engine, state } = await patient(t);
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
  await until('it is known', () => state.checks > 2);
  router.fleet.remove(router.fleet.workers[0]!);
  await until('nothing is open', () => engine.openSockets === 0);
  const after = state.checks;
  await new Promise((resolve) => {
    setTimeout(resolve, 150);
  });
  equal(state.checks, after);
});
