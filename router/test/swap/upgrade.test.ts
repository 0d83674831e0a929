import { deepEqual, equal, match } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { SimEngine } from '../../../simulator/src/engine.ts';
import { connectClient } from '../harness/client.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { startTestRouter } from '../harness/router.ts';
import { type SwapScene, SNAPSHOTS, holdLoads, sceneOf, startSims, startSwapScene } from '../harness/swap-scene.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

/** A router knows nothing of the pauses of another one: its checks fail then. */
const OFTEN = { disableHealthCheck: false, healthCheckIntervalSecs: 0.05, healthFailureThreshold: 1_000 };
const GRACE_MS = 60_000;
const isLinux = { skip: process.platform !== 'linux' };

const loadsOf = ({ core }: SimEngine): number =>
  core.faults.calls.filter((path) => path === '/update_weights_from_disk').length;

const generate = (url: string, rid: string): Promise<Response> =>
  fetch(`${url}/generate`, {
    method: 'POST',
    body: JSON.stringify({ input_ids: [5, 6], rid, stream: true, sampling_params: { max_new_tokens: 3 } }),
  });

/** A router, and the one that is started after it with its data directory. */
async function startBoth(t: TestContext): Promise<{ engine: SimEngine; old: SwapScene; next: SwapScene }> {
  const options = { dataDir: temporaryFolder(t), ...OFTEN };
  const [engine] = await startSims(t, ['sglang']);
  const old = await startSwapScene(t, [engine!], options);
  await old.swap('step-1');
  return { engine: engine!, old, next: await startSwapScene(t, [engine!], options) };
}

const workerOf = async ({ status }: SwapScene) => {
  const { state, snapshot } = (await status()).workers[0]!;
  return [state, snapshot];
};

for (const [how, isShared] of [
  ['the same', true],
  ['another', false],
] as const) {
  test(`a router that drains loads nothing over the swap of one with ${how} data directory`, isLinux, async (t) => {
    const script = (id: string) => (id.includes('held') ? { ids: [410, 411, 412], holdAt: 1 } : undefined);
    const [engine] = await startSims(t, ['sglang'], { script });
    const { log, of } = recordedLog('info');
    const dataDir = temporaryFolder(t);
    const old = await startSwapScene(t, [engine!], { dataDir, ...OFTEN }, { log });
    await old.swap('step-1');
    const stream = await generate(old.router.url, 'held');
    const closed = old.router.close(GRACE_MS);
    const next = await startSwapScene(t, [engine!], { dataDir: isShared ? dataDir : temporaryFolder(t), ...OFTEN });
    await next.swap('step-2');
    await until('the old router has noticed it', () => of('engine has other weights').length > 0);
    const [worker] = old.router.fleet.workers;
    equal(worker!.reasonNames().includes('version'), false);
    const checks = new Set<number | null>();
    await until('it goes on checking', () => checks.add(worker!.checkedAtMs).size > 10);
    const { core } = engine!;
    core.release(() => true);
    match(await stream.text(), /\[DONE\]/);
    await closed;
    deepEqual([of('draining').length, core.modelPath, loadsOf(engine!)], [1, '/snapshots/step-2', 2]);
    deepEqual(await workerOf(next), ['serving', 'step-2']);
  });
}

test(
  'the router of before serves what the next one has loaded without its name, and takes over when that ends',
  isLinux,
  async (t) => {
    const { engine, old, next } = await startBoth(t);
    for (const [path, body] of [
      ['/swap', { identity: 'step-2' }],
      ['/swap/begin', { identity: 'step-2' }],
      ['/swap/end', { identity: 'step-2' }],
      ['/hot_load/v1/models/hot_load', { identity: 'step-2' }],
    ] as const) {
      const answer = await old.post(path, body);
      deepEqual([path, answer.status], [path, 503]);
      match(await answer.text(), /started later with its --data-dir/);
    }
    equal((await fetch(`${old.router.url}/swap`, { method: 'DELETE' })).status, 503);
    await next.swap('step-2');
    await until('the old router has noticed it', async () => (await workerOf(old))[1] === null);
    const answer = await generate(old.router.url, 'later');
    deepEqual([answer.status, answer.headers.get('x-turnout-snapshot')], [200, null]);
    match(await answer.text(), /\[DONE\]/);
    deepEqual([await workerOf(old), loadsOf(engine)], [['serving', null], 2]);
    await next.router.close();
    equal((await old.swap('step-3')).snapshot, 'step-3');
    await until('its name is known again', async () => (await workerOf(old))[1] === 'step-3');
  },
);

test(
  'an engine that is restarted is brought in by the next router alone, and by the one before when that has ended',
  isLinux,
  async (t) => {
    const { engine, old, next } = await startBoth(t);
    await engine.kill();
    for (const scene of [old, next])
      await until('it is noticed', async () => (await workerOf(scene))[0] === 'registered');
    const [back] = await startSims(t, ['sglang'], { port: engine.port });
    await until('the next router serves it', async () => (await workerOf(next))[0] === 'serving');
    deepEqual([back!.core.modelPath, loadsOf(back!)], ['/snapshots/step-1', 1]);
    deepEqual(await workerOf(old), ['registered', null]);
    await next.router.close();
    await until('the old router serves it', async () => (await workerOf(old))[0] === 'serving');
    deepEqual([await workerOf(old), loadsOf(back!)], [['serving', 'step-1'], 1]);
  },
);

test('a router does not start in the middle of the swap of another one', isLinux, async (t) => {
  const dataDir = temporaryFolder(t);
  const [engine] = await startSims(t, ['sglang']);
  const old = await startSwapScene(t, [engine!], { dataDir });
  const goOn = holdLoads(t, engine!);
  await old.post('/swap', { identity: 'step-1' });
  await until('it loads', () => loadsOf(engine!) === 1);
  const { log, of } = recordedLog('info');
  let isStarted = false;
  const options = { workerUrls: [engine!.url], swapSnapshots: SNAPSHOTS, dataDir };
  const started = startTestRouter(t, options, { log }).finally(() => (isStarted = true));
  const wait = 'the start waits for the weight swap of another router that runs with this --data-dir';
  await until('it waits', () => of(wait).length > 0);
  equal(isStarted, false);
  goOn();
  const next = await sceneOf(await started, [engine!]);
  const { snapshot, swaps } = await next.status();
  deepEqual(
    [snapshot, swaps.map(({ identity, ended_at }) => [identity, ended_at !== null])],
    ['step-1', [['step-1', true]]],
  );
  deepEqual([await workerOf(next), loadsOf(engine!), engine!.core.paused], [['serving', 'step-1'], 1, false]);
});

test('a router that drains ends its swap first, so that no engine stays paused', async (t) => {
  const [engine] = await startSims(t, ['sglang']);
  const { log, of } = recordedLog('info');
  const { router, post } = await startSwapScene(t, [engine!], {}, { log });
  const idle = await connectClient(t, router.url);
  const goOn = holdLoads(t, engine!);
  await post('/swap', { identity: 'step-1' });
  await until('it loads', () => loadsOf(engine!) === 1);
  const closed = router.close(GRACE_MS);
  // Afterwards no request keeps it from its end.
  await idle.ended;
  equal(of('drained').length, 0);
  goOn();
  await closed;
  deepEqual([engine!.core.modelPath, engine!.core.paused], ['/snapshots/step-1', false]);
});
