import { deepEqual, equal } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { HELLO, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const FAST = { disableHealthCheck: false, healthCheckIntervalSecs: 0.02, healthFailureThreshold: 1 };

/** An SGLang engine as far as the router looks. */
async function sglang(t: TestContext, version: string, model: string | null = null) {
  const state = { version, isWell: true };
  const engine = await startEngine(t, {
    control: (path) => {
      if (path === '/health' || path === '/ready') return answer(state.isWell ? 200 : 503, '');
      if (path === '/model_info')
        return answer(200, JSON.stringify({ model_path: '/models/m', weight_version: state.version }));
      if (path === '/v1/models' && model !== null) return answer(200, JSON.stringify({ data: [{ id: model }] }));
      return answer(404, '');
    },
    onRequest: (asked) => asked.answer(JSON.stringify(state.version)),
  });
  return { engine, state, url: engine.url };
}

test('a worker that comes back with other weights stays out until they are those that serve', async (t) => {
  const steady = await sglang(t, '7');
  const restarting = await sglang(t, '7');
  const router = await startTestRouter(t, { ...FAST, workerUrls: [steady.url, restarting.url] });
  await until('both serve', () => router.fleet.workers.every(({ engine }) => engine === 'sglang'));
  const worker = router.fleet.get(restarting.url)!;
  restarting.state.isWell = false;
  await until('it is in quarantine', () => !worker.isHealthy);
  restarting.state.version = '0';
  restarting.state.isWell = true;
  await until('it is well, with old weights', () => worker.isHealthy && worker.weightVersion === '0');
  deepEqual(worker.reasonNames(), ['version']);
  for (let i = 0; i < 4; i++) equal((await send(t, router.url, HELLO)).text, '"7"');
  restarting.state.version = '7';
  await until('it serves', () => router.fleet.eligible.length === 2);
});

test('a new worker serves only with the weights that serve', async (t) => {
  const steady = await sglang(t, '7');
  const router = await startTestRouter(t, { ...FAST, workerUrls: [steady.url] });
  await until('it is known', () => router.fleet.workers[0]!.weightVersion === '7');
  const old = await sglang(t, '6');
  const same = await sglang(t, '7');
  for (const { url } of [old, same]) await send(t, router.url, request('POST', `/add_worker?url=${url}`));
  deepEqual(
    router.fleet.eligible.map(({ url }) => url),
    [steady.url],
  );
  await until('the right one serves', () => router.fleet.eligible.length === 2);
  for (let i = 0; i < 6; i++) equal((await send(t, router.url, HELLO)).text, '"7"');
  await until('the other is known', () => router.fleet.get(old.url)!.weightVersion === '6');
  deepEqual(router.fleet.get(old.url)!.reasonNames(), ['version']);
});

test('a weight update of the whole fleet, one worker after the other, ejects no worker', async (t) => {
  const engines = await Promise.all([sglang(t, '1'), sglang(t, '1'), sglang(t, '1')]);
  const router = await startTestRouter(t, { ...FAST, workerUrls: engines.map(({ url }) => url) });
  await until('all are known', () => router.fleet.workers.every(({ weightVersion }) => weightVersion === '1'));
  let fewest = 3;
  router.fleet.onEvent(() => (fewest = Math.min(fewest, router.fleet.eligible.length)));
  for (const { state, url } of engines) {
    state.version = '2';
    await until('the router knows', () => router.fleet.get(url)!.weightVersion === '2');
  }
  equal(fewest, 3);
});

test('when the whole fleet restarts, the first one back serves', async (t) => {
  const engines = await Promise.all([sglang(t, '5'), sglang(t, '5')]);
  const [first, second] = engines;
  const router = await startTestRouter(t, { ...FAST, workerUrls: engines.map(({ url }) => url) });
  await until('all are known', () => router.fleet.workers.every(({ weightVersion }) => weightVersion === '5'));
  for (const { state } of engines) state.isWell = false;
  await until('nobody serves', () => router.fleet.eligible.length === 0);
  for (const { state } of engines) state.version = '0';
  second.state.isWell = true;
  await until('one serves', () => router.fleet.eligible.length === 1);
  first.state.isWell = true;
  await until('both serve', () => router.fleet.eligible.length === 2);
});

test('engines of another model have other weights: one that comes back or joins is compared with those of its model', async (t) => {
  const policies = await Promise.all([sglang(t, '7', 'policy'), sglang(t, '7', 'policy')]);
  const judge = await sglang(t, '0', 'judge');
  const router = await startTestRouter(t, { ...FAST, workerUrls: [...policies, judge].map(({ url }) => url) });
  await until('all are known', () => router.fleet.workers.every(({ models }) => models !== null));
  const worker = router.fleet.get(judge.url)!;
  judge.state.isWell = false;
  await until('it is in quarantine', () => !worker.isHealthy);
  judge.state.isWell = true;
  await until('it serves', () => router.fleet.eligible.includes(worker));
  const [same, old] = [await sglang(t, '0', 'judge'), await sglang(t, '6', 'policy')];
  for (const { url } of [same, old]) router.fleet.add(url);
  await until('a second one serves', () => router.fleet.eligible.length === 4);
  await until('the other is known', () => router.fleet.get(old.url)!.weightVersion === '6');
  deepEqual(router.fleet.get(old.url)!.reasonNames(), ['version']);
});

test('an engine that tells no version is not held back', async (t) => {
  const steady = await sglang(t, '7');
  const mute = await startEngine(t);
  const router = await startTestRouter(t, { ...FAST, workerUrls: [steady.url] });
  await until('it is known', () => router.fleet.workers[0]!.weightVersion === '7');
  router.fleet.add(mute.url);
  await until('both serve', () => router.fleet.eligible.length === 2);
  equal(router.fleet.get(mute.url)!.engine, 'openai');
});
