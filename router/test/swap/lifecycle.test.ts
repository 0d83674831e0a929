import { deepEqual, equal, ok } from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { SwapEngine } from '../../src/swap/engine.ts';
import { Worker } from '../../src/fleet/worker.ts';
import { WorkerSet } from '../../src/swap/worker-set.ts';
import { startRouterProcess } from '../chaos/router-process.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { deadUrl } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { startTestRouter } from '../harness/router.ts';
import { SNAPSHOTS, type SwapStatus, holdLoads, sceneOf, startSims, startSwapScene } from '../harness/swap-scene.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const short = { prompt: 'go on', max_tokens: 4, ignore_eos: true };
const FAST = { disableHealthCheck: false, healthCheckIntervalSecs: 0.02, healthFailureThreshold: 1 };
const OFTEN = ['--health-check-interval-secs', '0.05'];
const LOADS = /^\/(collective_rpc|update_weights_from_disk)/;

test('the calls to each engine, in order', async (t) => {
  const [vllm, sglang] = await startSims(t, ['vllm', 'sglang']);
  const { swap } = await startSwapScene(t, [vllm!, sglang!]);
  await swap('step-1');
  await swap('step-2', { transition: 'sync' });
  deepEqual(
    vllm!.core.faults.calls,
    ['keep', 'wait'].flatMap((mode) => [
      `/pause?mode=${mode}&clear_cache=false`,
      '/collective_rpc',
      '/update_weight_version',
      '/resume',
    ]),
  );
  const calls = ['/pause_generation', '/update_weights_from_disk', '/continue_generation'];
  deepEqual(
    sglang!.core.faults.calls.filter((call) => call !== '/server_info'),
    [...calls, ...calls],
  );
});

test('a worker that joins serves only after it has loaded the snapshot of the fleet', async (t) => {
  const [first, ...others] = await startSims(t, ['sglang', 'vllm', 'sglang']);
  const { router, swap, status } = await startSwapScene(t, [first!]);
  await swap('step-1');
  let sooner = 0;
  const look = (): void => {
    for (const { url, core } of others) {
      const worker = router.fleet.get(url);
      if (worker !== undefined && router.fleet.isEligible(worker) && core.weightVersion !== 'step-1') sooner++;
    }
  };
  // Requests are placed after all listeners of an event.
  router.fleet.onEvent(() => queueMicrotask(look));
  for (const { url } of others) await send(t, router.url, request('POST', `/add_worker?url=${url}`));
  const joined = await status();
  equal(joined.workers.length, 3);
  await until('all serve', () => router.fleet.eligible.length === 3);
  equal(sooner, 0);
  for (const { core } of others) deepEqual([core.modelPath, core.paused], ['/snapshots/step-1', false]);
});

const NONE = 'no worker is available: new requests are refused';

test('engines that are being identified or load their first weights are no missing workers', async (t) => {
  const { log, of } = recordedLog('info');
  const dataDir = temporaryFolder(t);
  const [engine] = await startSims(t, ['sglang']);
  const before = await startSwapScene(t, [engine!], { dataDir }, { log });
  await before.swap('step-1');
  await before.router.close();
  await engine!.kill();
  // It has other weights than the ledger: it loads before its first request.
  const [fresh] = await startSims(t, ['sglang'], { port: engine!.port });
  const { router } = await startSwapScene(t, [fresh!], { dataDir }, { log });
  equal(fresh!.core.modelPath, '/snapshots/step-1');
  equal(of(NONE).length, 0);
  router.fleet.setReason(router.fleet.workers[0]!, 'breaker', true);
  equal(of(NONE).length, 1);
});

test('engines that do not answer, or cannot load their first weights, are missing workers', async (t) => {
  const { log, of } = recordedLog('info');
  const dataDir = temporaryFolder(t);
  const workerUrls = [await deadUrl()];
  await startTestRouter(t, { workerUrls, swapSnapshots: SNAPSHOTS, dataDir, ...FAST }, { log });
  await until('it is missed', () => of(NONE).length === 1);

  const quiet = recordedLog('info');
  const [engine] = await startSims(t, ['vllm']);
  const folder = temporaryFolder(t);
  const before = await startSwapScene(t, [engine!], { dataDir: folder });
  await before.swap('step-1');
  await before.router.close();
  engine!.core.scheduler.weightVersion = 'default';
  engine!.core.faults.add('/collective_rpc', 'fail_half', 2);
  const options = { workerUrls: [engine!.url], swapSnapshots: SNAPSHOTS, dataDir: folder };
  await startTestRouter(t, options, { log: quiet.log });
  await until('it is missed', () => quiet.of(NONE).length === 1);
});

test('a swap that begins while a worker joins is loaded by that worker too', async (t) => {
  const [first, late] = await startSims(t, ['sglang', 'sglang'], { weightLoadMs: 5_000 });
  const goOn = holdLoads(t, first!);
  const isAsked = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<void>();
  const askPath = SwapEngine.prototype.readPath;
  t.mock.method(SwapEngine.prototype, 'readPath', async function (this: SwapEngine, timeoutMs: number) {
    if (this.url === late!.url) {
      isAsked.resolve();
      await answer.promise;
    }
    return askPath.call(this, timeoutMs);
  });
  const { router, post: signal } = await startSwapScene(t, [first!]);
  await send(t, router.url, request('POST', `/add_worker?url=${late!.url}`));
  await isAsked.promise;
  equal((await signal('/swap', { identity: 'step-1' })).status, 202);
  await until('the swap is under way', () => first!.core.paused);
  answer.resolve();
  goOn();
  await until('both serve', () => router.fleet.eligible.length === 2);
  equal(late!.core.weightVersion, 'step-1');
});

test('a worker that has the snapshot already is not loaded again', async (t) => {
  const [first] = await startSims(t, ['sglang']);
  const [second] = await startSims(t, ['vllm'], { weightVersion: 'step-1', modelPath: '/snapshots/step-1' });
  const { router, swap } = await startSwapScene(t, [first!]);
  await swap('step-1');
  await send(t, router.url, request('POST', `/add_worker?url=${second!.url}`));
  await until('both serve', () => router.fleet.eligible.length === 2);
  deepEqual(second!.core.faults.calls, []);
});

test('a worker that joins during a swap is brought in after it', async (t) => {
  const [first, second] = await startSims(t, ['sglang', 'vllm'], { weightLoadMs: 1_000 });
  const { router, post: call, status, untilOver } = await startSwapScene(t, [first!]);
  await call('/swap', { identity: 'step-1' });
  await send(t, router.url, request('POST', `/add_worker?url=${second!.url}`));
  await untilOver();
  await until('both serve', () => router.fleet.eligible.length === 2);
  deepEqual(
    (await status()).workers.map(({ snapshot, state }) => [snapshot, state]),
    [
      ['step-1', 'serving'],
      ['step-1', 'serving'],
    ],
  );
});

test('an engine that is restarted before its turn comes is brought in after the swap, which is no failure', async (t) => {
  const [first, second] = await startSims(t, ['sglang', 'sglang']);
  const options = { ...FAST, swapConcurrency: 1 };
  const { router, post, status, untilOver } = await startSwapScene(t, [first!, second!], options);
  const goOn = holdLoads(t, first!);
  await post('/swap', { identity: 'v1' });
  await until('the first engine loads', () => first!.core.faults.calls.some((call) => LOADS.test(call)));
  await second!.close();
  await until('its end is noticed', async () =>
    (await status()).workers.some(({ url, state }) => url === second!.url && state !== 'serving'),
  );
  goOn();
  await untilOver();
  const { engines } = (await status()).swaps[0]!;
  deepEqual(
    engines.map(({ url, error }) => [url, error]),
    [[first!.url, null]],
  );
  const { port } = new URL(second!.url);
  await startSims(t, ['sglang'], { port: Number(port) });
  await until('both have it', () => router.fleet.eligible.length === 2);
  equal(
    (await status()).workers.every(({ snapshot, error }) => snapshot === 'v1' && error === null),
    true,
  );
});

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: an engine that was restarted gets the snapshot before its first request`, async (t) => {
    const [steady, dying] = await startSims(t, ['sglang', kind]);
    const { router, swap } = await startSwapScene(t, [steady!, dying!], { ...FAST, policy: 'round_robin' });
    await swap('step-1');
    await dying!.kill();
    await until('it is out', () => router.fleet.eligible.length === 1);
    const versions: string[] = [];
    const [back] = await startSims(t, [kind], {
      port: dying!.port,
      onFinished: ({ weightVersions }) => versions.push(...weightVersions.map(({ version }) => version)),
    });
    await until('it serves', () => router.fleet.eligible.length === 2);
    equal(back!.core.modelPath, '/snapshots/step-1');
    for (let i = 0; i < 4; i++) equal((await send(t, router.url, post('/v1/completions', short))).status, 200);
    deepEqual([...new Set(versions)], ['step-1']);
  });
}

test('an engine that was restarted while it could not be resumed is not taken for the one of before', async (t) => {
  const [engine] = await startSims(t, ['vllm']);
  const { router, post: call, status } = await startSwapScene(t, [engine!]);
  engine!.core.faults.add('/resume', 'fail_before', 3);
  await call('/swap', { identity: 'step-1' });
  await until('it has tried', () => engine!.core.faults.calls.filter((each) => each === '/resume').length > 1);
  await engine!.kill();
  let sooner = 0;
  const [back] = await startSims(t, ['vllm'], { port: engine!.port });
  router.fleet.onEvent(() => {
    if (router.fleet.eligible.length > 0 && back!.core.modelPath === 'sim') sooner++;
  });
  await until('it is brought in', async () => (await status()).workers[0]!.state === 'serving');
  equal(sooner, 0, 'with the weights of its start');
  equal(back!.core.modelPath, '/snapshots/step-1');
});

test('the ranks of an engine are swapped once', async (t) => {
  const [engine] = await startSims(t, ['sglang']);
  const workerUrls = [0, 1, 2].map((rank) => `${engine!.url}@${rank}`);
  const scene = await startSwapScene(t, [engine!], { workerUrls });
  const { workers } = await scene.swap('step-1');
  deepEqual(
    workers.map(({ snapshot, state }) => [snapshot, state]),
    workerUrls.map(() => ['step-1', 'serving']),
  );
  equal(engine!.core.faults.calls.filter((call) => LOADS.test(call)).length, 1);
});

test('a swap that begins while an engine joins is not missed by that engine', async (t) => {
  const [engine] = await startSims(t, ['vllm']);
  const { bring } = WorkerSet.prototype;
  let hasBegun = false;
  // The engine has the snapshot of the fleet, and is asked whether it is paused.
  t.mock.method(WorkerSet.prototype, 'bring', async function (this: WorkerSet, ...args: Parameters<typeof bring>) {
    const swap = await bring.apply(this, args);
    if (!hasBegun) this.signal({ identity: 'step-1', reset: 'all', transition: 'async', mover: 'router' });
    hasBegun = true;
    return swap;
  });
  await startSwapScene(t, [engine!]);
  await until('it is loaded', () => engine!.core.modelPath.endsWith('step-1') && !engine!.core.paused);
});

test('deployments of other workers are swapped apart', async (t) => {
  const [a, b] = await startSims(t, ['sglang', 'vllm']);
  const of = (name: string, url: string) => ({
    deployment: `accounts/acct/deployments/${name}`,
    transition: 'async',
    snapshots: `/${name}/{identity}`,
    'base-identity': 'zero',
    workers: [url],
  });
  const options = { swapSnapshots: undefined, deployments: [of('a', a!.url), of('b', `${b!.url}/`)] };
  const { post: call, router } = await startSwapScene(t, [a!, b!], options);
  equal((await call('/swap', { identity: 'x' })).status, 400, 'which one?');
  equal((await call('/swap', { identity: 'x', deployment: 'accounts/acct/deployments/b' })).status, 202);
  await until('b has it', () => b!.core.modelPath === '/b/x' && !b!.core.paused);
  equal(a!.core.modelPath, 'sim');
  const { deployments } = (await (await fetch(`${router.url}/swap`)).json()) as { deployments: SwapStatus[] };
  deepEqual(
    deployments.map(({ workers }) => workers.map(({ url }) => url)),
    [[a!.url], [b!.url]],
  );
});

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: a router that is killed in a swap and started again finishes it`, async (t) => {
    const engines = await startSims(t, [kind, kind], { timeScale: 1, weightLoadMs: 400 });
    const dataDir = temporaryFolder(t);
    const options = ['--swap-snapshots', SNAPSHOTS, '--data-dir', dataDir, '--swap-concurrency', '1'];
    const urls = engines.map(({ url }) => url);
    const before = await startRouterProcess(t, urls, options);
    await until(
      'all serve',
      async () => (await before.metric('turnout_workers{eligible="true",role="regular"}')) === 2,
    );
    const scene = await sceneOf({ url: before.url } as never, engines);
    await scene.swap('step-1');
    const client = await connectClient(t, before.url);
    client.write(post('/v1/completions', { ...short, max_tokens: 5_000, stream: true }));
    const goOn = holdLoads(t, ...engines);
    await scene.post('/swap', { identity: 'step-2' });
    await until('one is paused', () => engines.some(({ core }) => core.paused));
    before.child.kill('SIGKILL');
    await once(before.child, 'close');
    ok(engines.some(({ core }) => core.weightVersion !== 'step-2'));
    goOn();

    const after = await startRouterProcess(t, urls, options);
    const again = await sceneOf({ url: after.url } as never, engines);

    const { snapshot, workers, swaps } = await again.status();
    equal(snapshot, 'step-2');
    for (const worker of workers) deepEqual([worker.snapshot, worker.state], ['step-2', 'serving']);
    for (const { core } of engines)
      deepEqual([core.modelPath, core.weightVersion, core.paused], ['/snapshots/step-2', 'step-2', false]);
    deepEqual(
      swaps.map(({ identity, ended_at: endedAt }) => [identity, endedAt !== null]),
      [
        ['step-2', true],
        ['step-1', true],
      ],
    );
    equal((await send(t, after.url, post('/v1/completions', short))).status, 200);
  });

  test(`${kind}: a queued swap outlives a router that is killed, and a newer signal replaces it`, async (t) => {
    const engines = await startSims(t, [kind, kind]);
    const options = ['--swap-snapshots', SNAPSHOTS, '--data-dir', temporaryFolder(t)];
    const urls = engines.map(({ url }) => url);
    /** @returns lets the engines load */
    const killedWith = async (identities: readonly string[]): Promise<() => void> => {
      const { url, child } = await startRouterProcess(t, urls, options);
      const scene = await sceneOf({ url } as never, engines);
      const goOn = holdLoads(t, ...engines);
      for (const identity of identities) equal((await scene.post('/swap', { identity })).status, 202);
      equal((await scene.status()).waiting, identities.at(-1));
      child.kill('SIGKILL');
      await once(child, 'close');
      return goOn;
    };
    const load = await killedWith(['step-1', 'step-2', 'step-3']);
    load();
    const { url, child } = await startRouterProcess(t, urls, options);
    const again = await sceneOf({ url } as never, engines, ['serving', 'serving']);
    await until('the queued one has run', async () => (await again.untilOver()).snapshot === 'step-3');
    for (const { core } of engines) deepEqual([core.modelPath, core.paused], ['/snapshots/step-3', false]);
    deepEqual(
      (await again.status()).swaps.map(({ identity }) => identity),
      ['step-3', 'step-1'],
    );
    child.kill('SIGKILL');
    await once(child, 'close');

    const loadAgain = await killedWith(['step-4', 'step-5']);
    const last = await startRouterProcess(t, urls, options);
    const scene = await sceneOf({ url: last.url } as never, engines, ['warming', 'warming']);
    equal((await scene.post('/swap', { identity: 'step-6' })).status, 202);
    loadAgain();
    equal((await scene.untilOver()).snapshot, 'step-6');
    equal((await scene.status()).waiting, null);
  });

  test(`${kind}: a router that is killed while it brings in one engine and started again goes on with that`, async (t) => {
    const sims = { timeScale: 1, weightLoadMs: 400 };
    const [stays, leaves] = await startSims(t, [kind, kind], sims);
    const options = ['--swap-snapshots', SNAPSHOTS, '--data-dir', temporaryFolder(t), ...OFTEN];
    const urls = [stays!.url, leaves!.url];
    const before = await startRouterProcess(t, urls, options);
    const scene = await sceneOf({ url: before.url } as never, [stays!, leaves!]);
    await scene.swap('step-1');
    await leaves!.kill();
    const [joins] = await startSims(t, [kind], { ...sims, port: leaves!.port });
    await until('it loads', () => joins!.core.faults.calls.some((call) => LOADS.test(call)));
    before.child.kill('SIGKILL');
    await once(before.child, 'close');
    // An engine ends what it was told; then it has the weights of the fleet, and is paused.
    await until('it has loaded', () => joins!.core.modelPath === '/snapshots/step-1');

    const after = await startRouterProcess(t, urls, options);
    const again = await sceneOf({ url: after.url } as never, [stays!, joins!]);
    for (const worker of (await again.status()).workers)
      deepEqual([worker.snapshot, worker.state], ['step-1', 'serving']);
    for (const { core } of [stays!, joins!])
      deepEqual([core.modelPath, core.weightVersion, core.paused], ['/snapshots/step-1', 'step-1', false]);
    equal(stays!.core.faults.calls.filter((call) => LOADS.test(call)).length, 1, 'the other one is left alone');
    equal((await send(t, after.url, post('/v1/completions', short))).status, 200);
  });

  test(`${kind}: a process that takes the place of the one that has loaded does not get the label`, async (t) => {
    const [engine] = await startSims(t, [kind]);
    const { swap } = await startSwapScene(t, [engine!]);
    let fresh: typeof engine;
    const send = Worker.prototype.post;
    t.mock.method(Worker.prototype, 'post', async function (this: Worker, ...args: Parameters<typeof send>) {
      const reply = await send.apply(this, args);
      if (fresh === undefined && LOADS.test(args[0])) {
        await engine!.kill();
        [fresh] = await startSims(t, [kind], { port: engine!.port });
      }
      return reply;
    });
    const { swaps } = await swap('step-1');
    const { error } = swaps[0]!.engines[0]!;
    ok(/the engine was restarted|weight version "default"/.test(error ?? ''), error ?? 'no error');
    const calls = fresh!.core.faults.calls.filter(
      (path) => LOADS.test(path) || path.startsWith('/update_weight_version'),
    );
    ok(calls[0] === undefined || LOADS.test(calls[0]), calls.join());
  });
}
