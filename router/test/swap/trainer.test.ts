import { deepEqual, equal, match, notEqual, ok } from 'node:assert/strict';
import { once } from 'node:events';
import { type TestContext, test } from 'node:test';
import type { SimEngine } from '../../../simulator/src/engine.ts';
import { SwapEngine } from '../../src/swap/engine.ts';
import { startRouterProcess } from '../chaos/router-process.ts';
import { connectClient, send } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { startTestRouter } from '../harness/router.ts';
import { SNAPSHOTS, type SwapScene, holdLoads, sceneOf, startSims, startSwapScene } from '../harness/swap-scene.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const long = { prompt: 'go on', max_tokens: 1_500, ignore_eos: true, stream: true };
const short = { prompt: 'go on', max_tokens: 4, ignore_eos: true };
const TENSORS = '/update_weights_from_tensor';

/** What a trainer does with vLLM's own transfer calls. */
const moveVllm = (engine: SimEngine, weights: string): Promise<void> => engine.core.loadWeights(weights, undefined);
const direct = (engine: SimEngine, path: string, body: object = {}): Promise<Response> =>
  fetch(engine.url + path, { method: 'POST', body: JSON.stringify(body) });
const waitingAt = async ({ url }: { url: string }): Promise<number> =>
  ((await (await fetch(`${url}/requests`)).json()) as { total: number }).total;

test('begin, the weights by the trainer, end: streams go on, requests wait, none fails', async (t) => {
  // A stream can't end before it is released.
  const script = () => ({ ids: [], holdAt: 1_400 });
  const [vllm, sglang] = await startSims(t, ['vllm', 'sglang'], { script });
  const engines = [vllm!, sglang!];
  const { router, post: call, status } = await startSwapScene(t, engines, { policy: 'round_robin' });
  const streams = await Promise.all(engines.map(() => connectClient(t, router.url)));
  for (const client of streams) client.write(post('/v1/completions', long));
  await until('both generate', () => engines.every((engine) => engine.stats().running === 1));

  const begun = await call('/swap/begin', { identity: 'step-1' });

  equal(begun.status, 200);
  deepEqual(await begun.json(), {
    identity: 'step-1',
    engines: engines.map(({ url }) => ({ url, ok: true, error: null })),
    ok: 2,
    failed: 0,
  });
  ok(engines.every(({ core }) => core.paused));
  const waiting = send(t, router.url, post('/v1/completions', short));
  await until('it waits', async () => (await waitingAt(router)) === 3);
  await moveVllm(vllm!, 'tensors 1');
  equal(
    (await call(TENSORS, { weight_version: 'step-1', flush_cache: false })).status,
    207,
    'the other engine does not have this call',
  );

  const ended = await call('/swap/end', { identity: 'step-1' });

  equal(ended.status, 200, await ended.text());
  for (const { core } of engines) deepEqual([core.weightVersion, core.paused], ['step-1', false]);
  equal((await waiting).status, 200);
  for (const { core } of engines) core.release(() => true);
  for (const client of streams) ok((await client.answer('POST')).text.endsWith('data: [DONE]\n\n'));
  for (const engine of engines) equal(engine.stats().aborted, 0);
  for (const { state, snapshot } of (await status()).workers) deepEqual([state, snapshot], ['serving', 'step-1']);
});

test('an end that is repeated is answered as the first one, until another swap begins', async (t) => {
  const engines = await startSims(t, ['vllm', 'sglang']);
  const { post: call, swap } = await startSwapScene(t, engines);
  const end = async (body: object = { identity: 'step-1' }): Promise<unknown[]> => {
    const answer = await call('/swap/end', body);
    return [answer.status, await answer.json()];
  };
  equal((await call('/swap/begin', { identity: 'step-1' })).status, 200);
  const [first, ...others] = await Promise.all([end(), end(), end()]);
  const list = engines.map(({ url }) => ({ url, ok: true, error: null }));
  deepEqual(first, [200, { identity: 'step-1', engines: list, ok: 2, failed: 0 }]);
  for (const other of [...others, await end()]) deepEqual(other, first);
  equal((await end({}))[0], 409, 'nothing was begun');
  equal((await end({ identity: 'step-0' }))[0], 409);
  await swap('step-2');
  equal((await end())[0], 409);
});

test('what does not fit is refused, and nothing resumes by itself', async (t) => {
  const [engine] = await startSims(t, ['sglang']);
  const { router, post: call, status } = await startSwapScene(t, [engine!]);
  const refusal = async (path: string, body: object): Promise<string> => {
    const answer = await call(path, body);
    equal(answer.status, 409);
    return ((await answer.json()) as { error: string }).error;
  };
  match(await refusal('/swap/end', {}), /begin first/);
  equal((await call('/swap/begin', { identity: '../x' })).status, 400);
  equal((await call('/swap/begin', { identity: 'step-1' })).status, 200);
  equal((await call('/swap/begin', { identity: 'step-1' })).status, 200, 'the answer may have been lost');
  match(await refusal('/swap/begin', { identity: 'step-2' }), /A swap to step-1 runs/);
  match(await refusal('/swap/end', { identity: 'step-2' }), /is to step-1, not step-2/);

  await call(TENSORS, { weight_version: 'step-7' });
  match(await refusal('/swap/end', {}), /has step-7.*stay paused/);
  equal(engine!.core.paused, true);
  const impatient = ['x-fireworks-hot-load-drain-timeout: 0.05'];
  equal((await send(t, router.url, post('/v1/completions', short, impatient))).status, 425);

  equal(((await (await call('/swap', { identity: 'from-disk' })).json()) as { state: string }).state, 'queued');
  await call(TENSORS, { weight_version: 'step-1' });
  equal((await call('/swap/end')).status, 200);
  await until(
    'the queued one has ended',
    async () => (await status()).snapshot === 'from-disk' && !engine!.core.paused,
  );
});

test('sync: begin answers when the requests in flight have ended', async (t) => {
  const [engine] = await startSims(t, ['vllm']);
  const { router, post: call } = await startSwapScene(t, [engine!]);
  const client = await connectClient(t, router.url);
  client.write(post('/v1/completions', long));
  await until('it generates', () => engine!.stats().running === 1);
  const begun = call('/swap/begin', { identity: 'step-1', transition: 'sync' });
  equal((await client.answer('POST')).status, 200);
  equal((await begun).status, 200);
  equal((await send(t, router.url, post('/v1/completions', short))).status, 425);
  equal((await call('/swap/end')).status, 200);
  equal((await send(t, router.url, post('/v1/completions', short))).status, 200);
});

test('a trainer that gives up: the engines load what they had', async (t) => {
  const engines = await startSims(t, ['vllm', 'sglang']);
  const { router, swap, post: call, untilOver } = await startSwapScene(t, engines);
  await swap('step-1');
  await call('/swap/begin', { identity: 'step-2' });
  for (const { core } of engines) await core.loadWeights('half of step-2', undefined);
  await fetch(`${router.url}/swap`, { method: 'DELETE' });
  await untilOver();
  for (const { core } of engines) deepEqual([core.modelPath, core.paused], ['/snapshots/step-1', false]);
  equal((await send(t, router.url, post('/v1/completions', short))).status, 200);
});

test('a trainer that gives up: an engine whose weights are not known loads those of the fleet', async (t) => {
  const engines = await startSims(t, ['vllm', 'vllm']);
  const { swap, post: call, router, status, untilOver } = await startSwapScene(t, engines);
  await swap('step-1');
  const { faults } = engines[1]!.core;
  faults.add('/collective_rpc', 'fail_half', 50);
  await swap('step-2');
  await until('it is quarantined', async () => (await status()).workers.some(({ state }) => state === 'quarantined'));
  equal((await call('/swap/begin', { identity: 'step-3' })).status, 200);
  faults.forget();
  await fetch(`${router.url}/swap`, { method: 'DELETE' });
  const { workers, running } = await untilOver();
  equal(running, null);
  for (const { state, snapshot } of workers) deepEqual([state, snapshot], ['serving', 'step-2']);
  for (const { core } of engines) deepEqual([core.modelPath, core.paused], ['/snapshots/step-2', false]);
});

async function startBare(t: TestContext, kind: 'vllm' | 'sglang') {
  const engines = await startSims(t, [kind, kind]);
  const scene = await startSwapScene(t, engines, { policy: 'round_robin' });
  return { ...scene, engines };
}

const byName = (a: string, b: string): number => (a < b ? -1 : 1);

const bare = {
  sglang: { pause: '/pause_generation', resume: '/continue_generation', body: { mode: 'in_place' } },
  vllm: { pause: '/pause?mode=keep&clear_cache=false', resume: '/resume', body: {} },
};
for (const kind of ['vllm', 'sglang'] as const) {
  const { pause, resume, body } = bare[kind];
  const move = async (engines: readonly SimEngine[], version: string): Promise<void> => {
    for (const engine of engines) {
      await engine.core.loadWeights(version, undefined);
      await direct(engine, '/update_weight_version', { new_version: version, abort_all_requests: false });
    }
  };

  test(`${kind}: a bare pause and resume through the router are a bracket too`, async (t) => {
    const { router, engines, post: call, status } = await startBare(t, kind);
    equal((await call(pause, body)).status, 200);
    const waiting = Array.from({ length: 4 }, () => send(t, router.url, post('/v1/completions', short)));
    await until('they wait', async () => (await waitingAt(router)) === 4);
    deepEqual(
      engines.map((engine) => engine.stats().requests),
      [0, 0],
    );
    for (const { state, stage } of (await status()).workers) deepEqual([state, stage], ['swapping', 'load']);
    await move(engines, 'step-5');
    equal((await call(resume)).status, 200);
    for (const answer of await Promise.all(waiting)) equal(answer.status, 200);
    const { workers, snapshot } = await status();
    equal(snapshot, 'step-5');
    for (const worker of workers) deepEqual([worker.state, worker.snapshot], ['serving', 'step-5']);
  });

  test(`${kind}: it ends too when the engines report that they run again`, async (t) => {
    const { router, engines, post: call, status } = await startBare(t, kind);
    await call(pause, body);
    await move(engines, 'step-6');
    const answer = send(t, router.url, post('/v1/completions', short));
    for (const engine of engines) await direct(engine, resume);
    equal((await answer).status, 200);
    await until('all serve', async () => (await status()).workers.every(({ snapshot }) => snapshot === 'step-6'));
  });

  test(`${kind}: not with ?worker=, and not where the pause fails`, async (t) => {
    const { router, engines, post: call, status } = await startBare(t, kind);
    const [first] = engines;
    await call(`${pause}${pause.includes('?') ? '&' : '?'}worker=${encodeURIComponent(first!.url)}`, body);
    equal(first!.core.paused, true);
    for (const { state } of (await status()).workers) equal(state, 'serving');
    await direct(first!, resume);
    for (const { core } of engines) core.faults.add(pause.split('?')[0]!, 'fail_before');
    equal((await call(pause, body)).status, 500);
    for (const { state } of (await status()).workers) equal(state, 'serving');
    equal((await send(t, router.url, post('/v1/completions', short))).status, 200);
  });
}

test('a swap that is signalled while a trainer holds the engines waits for it', async (t) => {
  const { engines, post: call, status } = await startBare(t, 'sglang');
  await call(bare.sglang.pause, bare.sglang.body);
  equal(((await (await call('/swap', { identity: 'disk' })).json()) as { state: string }).state, 'queued');
  equal((await call('/swap/begin', { identity: 'x' })).status, 409);
  ok(engines.every(({ core }) => core.modelPath === 'sim'));
  await call(bare.sglang.resume);
  await until('it has run', async () => (await status()).workers.every(({ snapshot }) => snapshot === 'disk'));
});

test('a signal for what all engines have replaces one that waits for a trainer', async (t) => {
  const { engines, post: call, status, untilOver } = await startBare(t, 'sglang');
  await call(bare.sglang.pause, bare.sglang.body);
  await call('/swap', { identity: 'disk' });
  // The trainer may replace the weights before it resumes the engines.
  equal(((await (await call('/swap', { identity: 'base' })).json()) as { state: string }).state, 'queued');
  equal((await status()).waiting, 'base');
  await call(bare.sglang.resume);
  await untilOver();
  ok(engines.every(({ core }) => core.modelPath === 'sim'));
});

test('the rest of a running swap waits for a trainer that has paused engines', async (t) => {
  const engines = await startSims(t, ['sglang', 'sglang']);
  const { post: call, status, untilOver } = await startSwapScene(t, engines, { swapConcurrency: 1 });
  const { pause, resume, body } = bare.sglang;
  const [first, second] = engines;
  const goOn = holdLoads(t, first!);
  await call('/swap', { identity: 'step-1' });
  await until('the first one loads', () => first!.core.faults.calls.includes('/update_weights_from_disk'));
  await call(pause, body);
  goOn();
  const stateOf = async () => (await status()).workers.find(({ url }) => url === first!.url)!.state;
  await until('the first one has it', async () => (await stateOf()) === 'serving');
  await call(resume);
  await untilOver();
  const calls = second!.core.faults.calls.filter((path) => path !== '/server_info');
  deepEqual(calls, [pause, resume, pause, '/update_weights_from_disk', resume]);
});

/** A router was killed between a trainer's begin and its end. */
async function killedDuringSwap(t: TestContext, more: readonly string[] = ['--data-dir', temporaryFolder(t)]) {
  const engines = await startSims(t, ['vllm', 'sglang']);
  const urls = engines.map(({ url }) => url);
  const options = ['--swap-snapshots', SNAPSHOTS, ...more];
  const restart = () => startRouterProcess(t, urls, options);
  const { url, child } = await restart();
  const scene = await sceneOf({ url } as never, engines);
  equal((await scene.post('/swap/begin', { identity: 'step-1' })).status, 200);
  child.kill('SIGKILL');
  await once(child, 'close');
  return { engines, restart };
}

test('a router that is killed between begin and end leaves the engines to the trainer', async (t) => {
  const { engines, restart } = await killedDuringSwap(t);

  const after = await restart();
  const again = await sceneOf({ url: after.url } as never, engines, 'warming');
  ok(engines.every(({ core }) => core.paused));
  await moveAll(engines);
  equal((await again.post('/swap/end')).status, 200);
  for (const { state, snapshot } of (await again.untilOver()).workers)
    deepEqual([state, snapshot], ['serving', 'step-1']);
  equal((await send(t, after.url, post('/v1/completions', short))).status, 200);
});

/** Engines whose router was stopped after `/swap/begin`. @returns the options of the next one, too */
async function stoppedAfterBegin(t: TestContext) {
  const engines = await startSims(t, ['vllm', 'sglang']);
  const dataDir = temporaryFolder(t);
  const before = await startSwapScene(t, engines, { dataDir });
  equal((await before.post('/swap/begin', { identity: 'step-1' })).status, 200);
  await before.router.close();
  return { engines, options: { workerUrls: engines.map(({ url }) => url), swapSnapshots: SNAPSHOTS, dataDir } };
}

test('a router that is stopped between begin and end leaves the engines to the trainer', async (t) => {
  const { engines, options } = await stoppedAfterBegin(t);
  const router = await startTestRouter(t, { ...options, healthCheckTimeoutSecs: 60 });
  const again = await sceneOf(router, engines, 'warming');
  ok(engines.every(({ core }) => core.paused));
  await moveAll(engines);
  equal((await again.post('/swap/end')).status, 200);
  for (const { state, snapshot } of (await again.untilOver()).workers)
    deepEqual([state, snapshot], ['serving', 'step-1']);
});

test('a begin and an end that come before a restarted router has asked the engines are answered as later ones', async (t) => {
  const { engines, options } = await stoppedAfterBegin(t);
  const { learn } = SwapEngine.prototype;
  for (const path of ['/swap/begin', '/swap/end']) {
    if (path === '/swap/end') await moveAll(engines);
    const mayLearn = Promise.withResolvers<void>();
    const held = t.mock.method(SwapEngine.prototype, 'learn', async function (this: SwapEngine, timeoutMs: number) {
      await mayLearn.promise;
      return learn.call(this, timeoutMs);
    });
    const router = await startTestRouter(t, { ...options, healthCheckTimeoutSecs: 60 });
    const again = await sceneOf(router, engines, 'registered');
    const answer = again.post(path, { identity: 'step-1' });
    await until(
      'the request is at work',
      async () => held.mock.callCount() > engines.length || (await hasAnswer(answer)),
    );
    mayLearn.resolve();
    equal((await answer).status, 200, path);
    held.mock.restore();
    if (path === '/swap/begin') await router.close();
  }
  for (const { core } of engines) deepEqual([core.weightVersion, core.paused], ['step-1', false]);
});

const hasAnswer = (answer: Promise<unknown>): Promise<boolean> =>
  Promise.race([answer.then(() => true), new Promise<boolean>((resolve) => setImmediate(resolve, false))]);

test('a router that is stopped within a swap pauses no other engine', async (t) => {
  const engines = await startSims(t, ['vllm', 'sglang']);
  const goOn = holdLoads(t, ...engines);
  const dataDir = temporaryFolder(t);
  const before = await startSwapScene(t, engines, { dataDir, swapConcurrency: 1 });
  for (const identity of ['step-1', 'step-2']) await before.post('/swap', { identity });
  await until('an engine is paused', () => engines.some(({ core }) => core.paused));
  await before.router.close();
  await new Promise((resolve) => setTimeout(resolve, 300));
  equal(engines.filter(({ core }) => core.paused).length, 1);
  goOn();

  const after = await startSwapScene(t, engines, { dataDir });
  await until('the queued one is loaded', async () => (await after.untilOver()).snapshot === 'step-2');
});

const SELDOM = ['--health-check-interval-secs', '600', '--health-check-timeout-secs', '1'];

test('after a restart within a swap, the requests that follow its end are served at once', async (t) => {
  const { engines, restart } = await killedDuringSwap(t, ['--data-dir', temporaryFolder(t), ...SELDOM]);
  const after = await restart();
  const again = await sceneOf({ url: after.url } as never, engines, 'warming');
  const workers = async () =>
    ((await (await fetch(`${after.url}/workers`)).json()) as { workers: { last_check: object | null }[] }).workers;
  await until('they were checked while paused', async () =>
    (await workers()).every((worker) => worker.last_check !== null),
  );
  await moveAll(engines);
  equal((await again.post('/swap/end')).status, 200);
  for (let i = 0; i < 4; i++) equal((await send(t, after.url, post('/v1/completions', short))).status, 200);
  for (const engine of engines) ok(engine.stats().requests > 0, engine.url);
});

test('without a data directory, engines that a restarted router finds paused are named until they are resumed', async (t) => {
  const { engines, restart } = await killedDuringSwap(t, SELDOM);
  const [vllm, sglang] = engines;
  const after = await restart();
  const again = await sceneOf({ url: after.url } as never, engines, 'paused');
  for (const { url, error } of (await again.status()).workers) {
    const path = url === vllm!.url ? '/wake_up' : '/continue_generation';
    ok(error!.includes(`curl -X POST ${url}${path} `), error!);
    await after.says(new RegExp(`curl -X POST ${url}${path} .*engine found paused`));
  }
  await after.says(/no worker is available/);
  match((await send(t, after.url, post('/v1/completions', short))).text, /2 found paused/);
  const ended = await again.post('/swap/end');
  deepEqual([ended.status, /were found paused/.test(await ended.text())], [409, true]);

  await direct(vllm!, '/wake_up');
  const stateOf = async (url: string) => (await again.status()).workers.find((worker) => worker.url === url)!.state;
  await until('it serves', async () => (await stateOf(vllm!.url)) === 'serving');
  equal((await send(t, after.url, post('/v1/completions', short))).status, 200);
  equal((await again.swap('step-1')).workers.length, 2);
  await until('it serves', async () => (await stateOf(sglang!.url)) === 'serving');
  deepEqual([sglang!.core.modelPath, sglang!.core.paused], ['/snapshots/step-1', false]);
  for (let i = 0; i < 4; i++) equal((await send(t, after.url, post('/v1/completions', short))).status, 200);
});

/** What a trainer does to give all engines step-2. */
const updates = {
  async sglang({ post: call }: SwapScene): Promise<void> {
    equal((await call(TENSORS, { weight_version: 'step-2', flush_cache: false })).status, 200);
  },
  async vllm({ engines }: SwapScene): Promise<void> {
    for (const engine of engines) {
      await moveVllm(engine, 'tensors');
      await direct(engine, '/update_weight_version', { new_version: 'step-2' });
    }
  },
};

/** The fleet has step-1. A trainer pauses it past `/swap`, and the router is started again. @param update before that */
async function restartedUnderPause(
  t: TestContext,
  kind: 'vllm' | 'sglang',
  update?: (scene: SwapScene) => Promise<void>,
) {
  const engines = await startSims(t, [kind, kind]);
  // For so long /health of a paused SGLang is asked.
  const options = { swapSnapshots: SNAPSHOTS, dataDir: temporaryFolder(t), healthCheckTimeoutSecs: 2 };
  const before = await startSwapScene(t, engines, options);
  await before.swap('step-1');
  const { pause, resume, body } = bare[kind];
  equal((await before.post(pause, body)).status, 200);
  await update?.(before);
  await before.router.close();
  const router = await startTestRouter(t, { ...options, workerUrls: engines.map(({ url }) => url) });
  const again = await sceneOf(router, engines, 'paused');
  const snapshotsAfterResume = async (): Promise<(string | null)[]> => {
    await again.post(resume);
    await until('all serve', () => router.fleet.eligible.length === engines.length);
    const { snapshot, workers } = await again.status();
    return [snapshot, ...workers.map((worker) => worker.snapshot)];
  };
  return { ...again, engines, snapshotsAfterResume };
}

for (const kind of ['vllm', 'sglang'] as const) {
  for (const when of ['before', 'after'] as const) {
    test(`${kind}: an update under a bare pause, ${when} a restart of the router, is the snapshot`, async (t) => {
      const update = updates[kind];
      const scene = await restartedUnderPause(t, kind, when === 'before' ? update : undefined);
      const { engines, snapshotsAfterResume } = scene;
      if (when === 'after') await update(scene);
      deepEqual(
        engines.map(({ core }) => [core.weightVersion, core.paused]),
        engines.map(() => ['step-2', true]),
      );
      const paths = engines.map(({ core }) => core.modelPath);
      deepEqual(await snapshotsAfterResume(), ['step-2', 'step-2', 'step-2']);
      deepEqual(
        engines.map(({ core }) => core.modelPath),
        paths,
        'nothing was loaded over it',
      );
    });
  }
}

test('an update without a new name under a bare pause, after a restart of the router, leaves no snapshot', async (t) => {
  const { post: call, engines, snapshotsAfterResume } = await restartedUnderPause(t, 'sglang');
  equal((await call(TENSORS, { flush_cache: false })).status, 200);
  deepEqual(await snapshotsAfterResume(), ['step-1', null, null]);
  for (const { core } of engines) equal(core.modelPath, 'weights unnamed');
});

test('an engine that was found paused and is another process then says nothing of the weights of the fleet', async (t) => {
  const { engines, snapshotsAfterResume } = await restartedUnderPause(t, 'sglang');
  await engines[0]!.kill();
  const [back] = await startSims(t, ['sglang'], { port: engines[0]!.port, weightVersion: 'of-its-image' });
  deepEqual(await snapshotsAfterResume(), ['step-1', 'step-1', 'step-1']);
  deepEqual([back!.core.weightVersion, back!.core.modelPath], ['step-1', '/snapshots/step-1']);
});

for (const isUndone of [false, true]) {
  const how = isUndone ? 'DELETE /swap' : 'POST /swap/end';
  test(`after ${how} a swap that an earlier router left does not wait for an engine that has died`, async (t) => {
    const { engines, restart } = await killedDuringSwap(t);
    const [stays, dies] = engines;
    await dies!.kill();

    const after = await restart();
    const again = await sceneOf({ url: after.url } as never, engines, ['registered', 'warming']);
    await moveAll([stays!]);
    if (isUndone) equal((await fetch(`${after.url}/swap`, { method: 'DELETE' })).status, 202);
    else equal((await again.post('/swap/end', { identity: 'step-1' })).status, 207);
    const { snapshot, swaps } = await again.untilOver();
    deepEqual(
      [snapshot, swaps.every(({ ended_at: endedAt }) => endedAt !== null)],
      [isUndone ? 'base' : 'step-1', true],
    );
    equal((await again.swap('step-2')).snapshot, 'step-2');
    equal(stays!.core.modelPath, '/snapshots/step-2');
    // Its trainer does not wait for it any more.
    const [back] = await startSims(t, ['sglang'], { port: dies!.port });
    await until('it serves', async () => (await again.status()).workers.every(({ state }) => state === 'serving'));
    deepEqual([back!.core.modelPath, back!.core.paused], ['/snapshots/step-2', false]);
  });
}

for (const kind of ['vllm', 'sglang'] as const) {
  for (const how of ['was restarted while no router ran', 'has joined since'] as const) {
    test(`${kind}: an engine that ${how} is not taken for one with the weights of a trainer's swap`, async (t) => {
      const [steady, other] = await startSims(t, [kind, kind]);
      const dataDir = temporaryFolder(t);
      const hasJoined = how === 'has joined since';
      const before = await startSwapScene(t, hasJoined ? [steady!] : [steady!, other!], { dataDir });
      if (!hasJoined) await before.swap('step-1');
      equal((await before.post('/swap/begin', { identity: 'step-2' })).status, 200);
      await before.router.close();
      if (!hasJoined) await other!.kill();
      const [fresh] = hasJoined ? [other] : await startSims(t, [kind], { port: other!.port });

      const workerUrls = [steady!.url, fresh!.url];
      const options = { workerUrls, swapSnapshots: SNAPSHOTS, dataDir, healthCheckTimeoutSecs: 60 };
      const router = await startTestRouter(t, options);
      const again = await sceneOf(router, [steady!, fresh!], ['registered', 'warming']);
      await steady!.core.loadWeights('tensors', undefined);
      const ended = await again.post('/swap/end', { identity: 'step-2' });
      deepEqual([ended.status, steady!.core.weightVersion, steady!.core.paused], [207, 'step-2', false]);
      await until('both serve', () => router.fleet.eligible.length === 2);
      deepEqual([fresh!.core.weightVersion, fresh!.core.modelPath], ['step-2', '/snapshots/step-2']);
      equal(steady!.core.modelPath, 'tensors');
    });
  }
}

test('vllm: an engine without a snapshot that was restarted while no router ran is not taken for the one that was paused', async (t) => {
  const [engine] = await startSims(t, ['vllm']);
  const dataDir = temporaryFolder(t);
  const before = await startSwapScene(t, [engine!], { dataDir });
  equal((await before.post('/swap/begin', { identity: 'step-1' })).status, 200);
  await before.router.close();
  await engine!.kill();
  const [fresh] = await startSims(t, ['vllm'], { port: engine!.port });
  const after = await startSwapScene(t, [fresh!], { dataDir });
  deepEqual([(await after.untilOver()).snapshot, fresh!.core.modelPath], ['base', 'sim']);
  notEqual(fresh!.core.weightVersion, 'step-1');
  equal((await after.post('/swap/end', { identity: 'step-1' })).status, 409);
});

test('other weights than those of a swap that an earlier router has begun are noticed at its end', async (t) => {
  const [engine] = await startSims(t, ['vllm']);
  const dataDir = temporaryFolder(t);
  const before = await startSwapScene(t, [engine!], { dataDir });
  equal((await before.post('/swap/begin', { identity: 'step-1' })).status, 200);
  await before.router.close();
  const router = await startTestRouter(t, { workerUrls: [engine!.url], swapSnapshots: SNAPSHOTS, dataDir });
  const again = await sceneOf(router, [engine!], 'warming');
  await until('it is paused again', async () => (await again.status()).workers[0]!.stage === 'load');
  await engine!.core.loadWeights('tensors', 'step-7');
  const ended = await again.post('/swap/end', { identity: 'step-1' });
  deepEqual([ended.status, engine!.core.paused], [409, true]);
  match(await ended.text(), /has step-7/);
});

const moveAll = async (engines: readonly SimEngine[]): Promise<void> => {
  for (const { core } of engines) await core.loadWeights('tensors', undefined);
};

test('a worker that leaves the fleet during its swap is resumed', async (t) => {
  const engines = await startSims(t, ['vllm', 'sglang']);
  const goOn = holdLoads(t, ...engines);
  const { router, post: call, untilOver } = await startSwapScene(t, engines);
  await call('/swap', { identity: 'step-1' });
  await until('both are paused', () => engines.every(({ core }) => core.paused));
  for (const { url } of engines) await fetch(`${router.url}/remove_worker?url=${url}`, { method: 'POST' });
  goOn();
  await untilOver();
  await until('both go on', () => engines.every(({ core }) => !core.paused && core.modelPath === '/snapshots/step-1'));
});

test('a worker that leaves between begin and end holds up no later swap', async (t) => {
  const engines = await startSims(t, ['vllm', 'sglang']);
  const { router, post: call, swap, status } = await startSwapScene(t, engines);
  equal((await call('/swap/begin', { identity: 'step-1' })).status, 200);
  await fetch(`${router.url}/remove_worker?url=${engines[0]!.url}`, { method: 'POST' });
  equal((await call('/swap/end')).status, 200);
  ok(
    engines.every(({ core }) => !core.paused),
    'the trainer has sent weights to both',
  );
  equal((await status()).running, null);
  deepEqual(
    (await swap('step-2')).workers.map(({ url, snapshot }) => [url, snapshot]),
    [[engines[1]!.url, 'step-2']],
  );
});

test('a worker that leaves under a bare pause holds up no later swap', async (t) => {
  const { router, engines, post: call, swap } = await startBare(t, 'vllm');
  await call(bare.vllm.pause);
  const [stays, leaves] = engines;
  await fetch(`${router.url}/remove_worker?url=${leaves!.url}`, { method: 'POST' });
  await leaves!.kill();
  await call(bare.vllm.resume);
  equal((await swap('step-1')).snapshot, 'step-1');
  equal(stays!.core.modelPath, '/snapshots/step-1');
});

for (const kind of ['vllm', 'sglang'] as const) {
  for (const how of ['through the router', 'past it'] as const) {
    test(`${kind}: an engine that dies under a bare pause holds up no swap after a resume ${how}`, async (t) => {
      const [stays, dies, joins] = await startSims(t, [kind, kind, kind]);
      const { router, post: call, status } = await startSwapScene(t, [stays!, dies!]);
      const { pause, resume, body } = bare[kind];
      await call(pause, body);
      await dies!.kill();
      if (how === 'past it') await direct(stays!, resume);
      else equal((await call(resume)).status, 207);
      equal((await call('/swap', { identity: 'step-1' })).status, 202);
      await until('it is swapped', async () => stays!.core.modelPath === '/snapshots/step-1' && !stays!.core.paused);
      await until('the swap is over', async () => (await status()).running === null);
      await fetch(`${router.url}/add_worker?url=${joins!.url}`, { method: 'POST' });
      const stateOf = async (url: string) => (await status()).workers.find((worker) => worker.url === url)?.state;
      await until('another one has joined', async () => (await stateOf(joins!.url)) === 'serving');
      equal(joins!.core.modelPath, '/snapshots/step-1');
      equal(await stateOf(dies!.url), 'registered');
      equal((await call('/swap/begin', { identity: 'step-2' })).status, 207);
    });
  }
}

for (const isHalf of [false, true]) {
  const why = isHalf ? 'has half-written weights' : 'cannot load the snapshot of the fleet';
  test(`an engine that ${why} serves again after a complete update under a bare pause`, async (t) => {
    const engines = await startSims(t, ['sglang', 'sglang']);
    const { router, post: call, status } = await startSwapScene(t, engines);
    const { pause, resume, body } = bare.sglang;
    const step = async (...calls: [path: string, body: object][]): Promise<void> => {
      await call(pause, body);
      for (const [path, update] of calls) await call(path, { ...update, flush_cache: false });
      await call(resume);
    };
    const snapshots = async () =>
      (await status()).workers.map(({ state, snapshot }) => (state === 'serving' ? snapshot! : state)).toSorted(byName);
    await step([TENSORS, { weight_version: '5' }]);
    deepEqual(await snapshots(), ['5', '5']);
    const { faults } = engines[1]!.core;
    faults.add('/update_weights_from_disk', isHalf ? 'fail_half' : 'pretend', Infinity);
    await call('/swap', { identity: 'disk-6' });
    await until('it is quarantined', async () => (await snapshots()).includes('quarantined'));
    await until('the swap is over', async () => (await status()).running === null);

    const stillOut = ['disk-6', 'quarantined'];
    await step();
    deepEqual(await snapshots(), stillOut, 'no update');
    faults.add(TENSORS, 'fail_half');
    await step([TENSORS, { weight_version: '7' }], ['/update_weight_version', { new_version: '7' }]);
    deepEqual(await snapshots(), ['7', 'quarantined'], 'an update that failed there');
    await step(['/update_weight_version', { new_version: '8', abort_all_requests: false }]);
    deepEqual((await snapshots())[1], 'quarantined', 'a name only');
    equal((await send(t, router.url, post('/v1/completions', short))).status, 200);

    await step([TENSORS, { weight_version: '9' }]);
    deepEqual(await snapshots(), ['9', '9']);
    equal(router.fleet.eligible.length, 2);
    await step([TENSORS, { weight_version: '10' }]);
    deepEqual(await snapshots(), ['10', '10']);
    equal(router.fleet.eligible.length, 2);
  });
}

test('an engine that is another process under a bare pause says nothing of the weights of the fleet', async (t) => {
  const engines = await startSims(t, ['sglang', 'sglang']);
  const fast = { disableHealthCheck: false, healthCheckIntervalSecs: 0.02, healthFailureThreshold: 1 };
  const { router, post: call, status } = await startSwapScene(t, engines, fast);
  const { pause, resume, body } = bare.sglang;
  await call(pause, body);
  const { learn } = SwapEngine.prototype;
  const mayLearn = Promise.withResolvers<void>();
  t.mock.method(SwapEngine.prototype, 'learn', async function (this: SwapEngine, timeoutMs: number) {
    await mayLearn.promise;
    return learn.call(this, timeoutMs);
  });
  const dying = engines[1]!;
  await dying.kill();
  await until('it is gone', () => router.fleet.get(dying.url)!.problem === 'ECONNREFUSED');
  await startSims(t, ['sglang'], { port: dying.port, weightVersion: 'of-its-image' });
  const metrics = async (): Promise<string> => (await fetch(`${router.url}/metrics`)).text();
  await until('its restart is known', async () => (await metrics()).includes('swap_engines{state="registered"} 1'));
  equal((await call(resume)).status, 200);
  equal((await status()).snapshot, 'base');
  mayLearn.resolve();
  await until('both serve', () => router.fleet.eligible.length === 2);
});

test('an engine that is started anew between begin and end is not taken for one with the new weights', async (t) => {
  const engines = await startSims(t, ['vllm', 'vllm']);
  const fast = { disableHealthCheck: false, healthCheckIntervalSecs: 0.02, healthFailureThreshold: 1 };
  const { router, post: call, status } = await startSwapScene(t, engines, fast);
  equal((await call('/swap/begin', { identity: 'step-1' })).status, 200);
  const [steady, dying] = engines;
  await moveVllm(steady!, 'tensors 1');
  await dying!.kill();
  await until('it is gone', () => router.fleet.get(dying!.url)!.problem === 'ECONNREFUSED');
  const [back] = await startSims(t, ['vllm'], { port: dying!.port });
  await until('its restart is known', async () => (await status()).workers.some(({ state }) => state !== 'swapping'));
  equal((await call('/swap/end')).status, 207);
  equal(steady!.core.weightVersion, 'step-1');
  equal(back!.core.weightVersion, 'default');
});

test('a swap that was undone stays undone in the next router', async (t) => {
  const engines = await startSims(t, ['vllm', 'sglang'], { weightLoadMs: 500, timeScale: 1 });
  const options = ['--swap-snapshots', SNAPSHOTS, '--data-dir', temporaryFolder(t)];
  const urls = engines.map(({ url }) => url);
  const before = await startRouterProcess(t, urls, options);
  const scene = await sceneOf({ url: before.url } as never, engines);
  equal((await scene.post('/swap/begin', { identity: 'step-1' })).status, 200);
  equal((await fetch(`${before.url}/swap`, { method: 'DELETE' })).status, 202);
  before.child.kill('SIGKILL');
  await once(before.child, 'close');

  const after = await startRouterProcess(t, urls, options);
  const again = await sceneOf({ url: after.url } as never, engines);
  const { snapshot, workers } = await again.untilOver();
  equal(snapshot, 'base');
  for (const worker of workers) deepEqual([worker.state, worker.snapshot], ['serving', 'base']);
  for (const { core } of engines) deepEqual([core.modelPath, core.paused], ['sim', false]);
});
