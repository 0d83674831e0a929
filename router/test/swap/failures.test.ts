import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { ExchangeView } from '../../src/phases/exchange-view.ts';
import type { SimEngine } from '../../../simulator/src/engine.ts';
import { type Client, connectClient, send } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { untilIdle } from '../harness/router.ts';
import { type SwapScene, holdLoads, startSims, startSwapScene } from '../harness/swap-scene.ts';
import { until } from '../harness/within.ts';

const kinds = ['vllm', 'sglang'] as const;
const calls = {
  vllm: { pause: '/pause', load: '/collective_rpc', label: '/update_weight_version', resume: '/resume' },
  sglang: {
    pause: '/pause_generation',
    load: '/update_weights_from_disk',
    label: '/update_weight_version',
    resume: '/continue_generation',
  },
};
const long = { prompt: 'go on', max_tokens: 600, ignore_eos: true, stream: true };
/** A long stream can't end before it is released. */
const script = () => ({ ids: [], holdAt: 500 });
const short = { prompt: 'go on', max_tokens: 4, ignore_eos: true };

/** A failing engine and one without faults, with a stream at each. */
interface Pair extends SwapScene {
  readonly failing: SimEngine;
  readonly other: SimEngine;
  readonly streams: ReadonlyMap<SimEngine, Client>;
}

async function startPair(t: TestContext, kind: 'vllm' | 'sglang', weightLoadMs = 100): Promise<Pair> {
  const [failing, other] = await startSims(t, [kind, 'sglang'], { weightLoadMs, script });
  const engines = [failing!, other!];
  const scene = await startSwapScene(t, engines, { policy: 'round_robin' });
  await scene.swap('step-1');
  const streams = new Map<SimEngine, Client>();
  for (const engine of engines) {
    const client = await connectClient(t, scene.router.url);
    client.write(post('/v1/completions', long));
    streams.set(engine, client);
    await until('it generates', () => engine.stats().running === 1);
  }
  return { ...scene, failing: failing!, other: other!, streams };
}

const stateOf = async ({ status }: SwapScene, { url }: SimEngine) => {
  const { workers } = await status();
  return workers.find((worker) => worker.url === url)!;
};

const requestsOf = async ({ url }: { url: string }): Promise<number> =>
  ((await (await fetch(`${url}/requests`)).json()) as { total: number }).total;

/** The stream goes on and has every token, over the connection on which it began. */
async function endsWhole(client: Client, engine: SimEngine): Promise<void> {
  engine.core.release(() => true);
  const { status, text } = await client.answer('POST');
  equal(status, 200);
  ok(text.endsWith('data: [DONE]\n\n'), text.slice(-300));
  equal([...text.matchAll(/"text":"[^"]+"/g)].length > 0, true);
  equal(engine.stats().aborted, 0);
}

for (const kind of kinds) {
  const { pause, load, resume } = calls[kind];

  for (const fault of ['fail_before', 'lose_answer', 'fail_after'] as const) {
    test(`${kind}: pause: ${fault}: the engine is resumed, keeps its weights and says so`, async (t) => {
      const scene = await startPair(t, kind);
      const { failing, other, streams, swap, router } = scene;
      failing.core.faults.add(pause, fault);

      await swap('step-2');

      const { state, snapshot, target, stage, error } = await stateOf(scene, failing);
      deepEqual([state, snapshot, target, stage], ['error', 'step-1', 'step-2', 'error']);
      match(error!, /^pause: /);
      deepEqual([failing.core.modelPath, failing.core.paused], ['/snapshots/step-1', false]);
      deepEqual([other.core.modelPath, (await stateOf(scene, other)).state], ['/snapshots/step-2', 'serving']);
      equal((await scene.status()).workers[0]!.url, failing.url, 'the least ready first');
      for (const [engine, client] of streams) await endsWhole(client, engine);
      equal(router.fleet.eligible.length, 2);
      const { error: cleared } = (await swap('step-3')).workers[0]!;
      equal(cleared, null);
      equal(failing.core.modelPath, '/snapshots/step-3');
    });
  }

  for (const fault of ['fail_before', 'deny', 'fail_half', 'fail_after', 'lose_answer'] as const) {
    test(`${kind}: load on one of two: ${fault}: it goes back to the snapshot before`, async (t) => {
      const scene = await startPair(t, kind);
      const { failing, other, streams, swap, router } = scene;
      failing.core.faults.add(load, fault);

      await swap('step-2');

      const { state, snapshot, target, error } = await stateOf(scene, failing);
      deepEqual([state, snapshot, target], ['error', 'step-1', 'step-2']);
      match(error!, /^load: /);
      deepEqual(
        [failing.core.modelPath, failing.core.weightVersion, failing.core.paused],
        ['/snapshots/step-1', 'step-1', false],
      );
      equal(other.core.modelPath, '/snapshots/step-2');
      for (const [engine, client] of streams) await endsWhole(client, engine);
      equal(router.fleet.eligible.length, 2);
    });
  }

  test(`${kind}: an engine that reports its old version after the load does not serve`, async (t) => {
    const { log, of } = recordedLog('error');
    const [failing, other] = await startSims(t, [kind, 'sglang']);
    const scene = await startSwapScene(t, [failing!, other!], { policy: 'round_robin' }, { log });
    await scene.swap('step-1');
    // vLLM gets its version with a call of its own.
    failing!.core.faults.add(calls[kind][kind === 'vllm' ? 'label' : 'load'], 'pretend', Infinity);

    await scene.swap('step-2');

    const { state, snapshot, target, stage, error } = await stateOf(scene, failing!);
    deepEqual([state, snapshot, target, stage], ['quarantined', null, 'step-2', 'error']);
    match(error!, /^(load|label): .*reports the weight version "step-1", not "step-2"/);
    match(String(of('weight swap failed')[0]!['error']), /reports the weight version "step-1"/);
    deepEqual(
      scene.router.fleet.eligible.map(({ url }) => url),
      [other!.url],
    );
    failing!.core.faults.forget();
    await scene.swap('step-3');
    equal((await stateOf(scene, failing!)).state, 'serving');
  });

  test(`${kind}: an engine that can load neither snapshot is paused and out of routing until a swap works`, async (t) => {
    const scene = await startPair(t, kind);
    const { failing, other, streams, swap, router, post: call, status } = scene;
    failing.core.faults.add(load, 'fail_half', Infinity);
    const goOn = holdLoads(t, failing, other);
    await call('/swap', { identity: 'step-2' });
    await until('both are paused', () => failing.core.paused && other.core.paused);
    const held = Array.from({ length: 4 }, () => send(t, router.url, post('/v1/completions', short)));
    await until('they wait', async () => (await requestsOf(router)) === streams.size + held.length);
    goOn();

    await until('it is known', async () => (await status()).workers[0]!.state === 'quarantined');

    const { url, snapshot, stage } = (await status()).workers[0]!;
    deepEqual([url, snapshot, stage], [failing.url, null, 'error']);
    equal(failing.core.paused, true);
    deepEqual(
      router.fleet.eligible.map((worker) => worker.url),
      [other.url],
    );
    for (const answer of await Promise.all(held)) equal(answer.status, 200, 'what was held goes elsewhere');
    const ended = streams.get(failing)!;
    await ended.read('"code":"upstream_reset"');
    await endsWhole(streams.get(other)!, other);

    failing.core.faults.forget();
    await swap('step-3');
    equal((await stateOf(scene, failing)).state, 'serving');
    deepEqual([failing.core.modelPath, failing.core.paused], ['/snapshots/step-3', false]);
    equal(router.fleet.eligible.length, 2);
    await untilIdle(router);
  });

  test(`${kind}: the streams that end where no snapshot can be loaded open no breaker`, async (t) => {
    const [engine] = await startSims(t, [kind], { script });
    const options = { cbFailureThreshold: 1, maxEjectedPercent: 100 };
    const { router, swap, status } = await startSwapScene(t, [engine!], options);
    await swap('step-1');
    const client = await connectClient(t, router.url);
    client.write(post('/v1/completions', long));
    await until('it generates', () => engine!.stats().running === 1);
    engine!.core.faults.add(load, 'fail_half', Infinity);
    await swap('step-2');
    equal((await status()).workers[0]!.state, 'quarantined');
    await client.read('"code":"upstream_reset"');
    await untilIdle(router);
    deepEqual(router.fleet.workers[0]!.reasonNames(), ['version']);
    engine!.core.faults.forget();
    await swap('step-3');
    equal(router.fleet.eligible.length, 1);
  });

  test(`${kind}: an engine that dies half-way through a load is out of routing`, async (t) => {
    const scene = await startPair(t, kind, 500);
    const { failing, other, streams, swap, router } = scene;
    failing.core.faults.add(load, 'die');

    await swap('step-2');

    equal((await stateOf(scene, failing)).state, 'quarantined');
    deepEqual(
      router.fleet.eligible.map(({ url }) => url),
      [other.url],
    );
    await streams.get(failing)!.read('"code":"upstream_reset"');
    await endsWhole(streams.get(other)!, other);
    for (let i = 0; i < 4; i++) equal((await send(t, router.url, post('/v1/completions', short))).status, 200);
    await untilIdle(router);
  });

  test(`${kind}: an engine that does not resume is tried again until it does`, async (t) => {
    const scene = await startPair(t, kind);
    const { failing, streams, swap, status, router } = scene;
    failing.core.faults.add(resume, 'fail_before', Infinity);
    const ended = await swap('step-2');
    const { state, snapshot, error } = ended.workers.find(({ url }) => url === failing.url)!;
    deepEqual([state, snapshot], ['error', 'step-2']);
    match(error!, /^resume: /);
    failing.core.faults.forget();
    await until('it serves', async () => (await status()).workers.every((worker) => worker.state === 'serving'));
    deepEqual([failing.core.modelPath, failing.core.paused], ['/snapshots/step-2', false]);
    for (const [engine, client] of streams) await endsWhole(client, engine);
    equal(router.fleet.eligible.length, 2);
  });

  test(`${kind}: a client that leaves while its engine is paused leaves nothing behind`, async (t) => {
    const scene = await startPair(t, kind);
    const { failing, other, streams, post: call, untilOver, router } = scene;
    const goOn = holdLoads(t, failing, other);
    await call('/swap', { identity: 'step-2' });
    await until('it is paused', () => failing.core.paused);
    const waiting = await connectClient(t, router.url);
    waiting.write(post('/v1/completions', { ...long, max_tokens: 9_000 }));
    await until('it waits', async () => (await requestsOf(router)) === 3);
    for (const client of [...streams.values(), waiting]) client.end();
    await untilIdle(router);
    goOn();
    const { workers } = await untilOver();
    for (const { state } of workers) equal(state, 'serving');
    await untilIdle(router);
    await until('the engine has nothing to do', () => failing.stats().running + failing.stats().waiting === 0);
  });
}

test('vllm: a label that is not taken at first is set again', async (t) => {
  const scene = await startPair(t, 'vllm');
  scene.failing.core.faults.add(calls.vllm.label, 'fail_before', 2);
  await scene.swap('step-2');
  equal(scene.failing.core.weightVersion, 'step-2');
  deepEqual((await stateOf(scene, scene.failing)).error, null);
});

test('vllm: an engine that does not take its label does not serve under the label of before', async (t) => {
  const scene = await startPair(t, 'vllm');
  scene.failing.core.faults.add(calls.vllm.label, 'fail_before', Infinity);
  await scene.swap('step-2');
  const { state, snapshot, error } = await stateOf(scene, scene.failing);
  deepEqual([state, snapshot], ['quarantined', null]);
  match(error!, /^label: .*500.*reports the weight version "step-1"/);
});

test('an engine with half-written weights serves only after it has loaded whole ones', async (t) => {
  const [engine] = await startSims(t, ['vllm']);
  const { router, swap, status } = await startSwapScene(t, [engine!]);
  await swap('step-1');
  engine!.core.faults.add(calls.vllm.load, 'fail_half', Infinity);
  await swap('step-2');
  equal((await status()).workers[0]!.state, 'quarantined');
  equal(engine!.core.weightVersion, 'step-1', 'the version is that of before');
  engine!.core.faults.forget();
  await until('it serves', () => router.fleet.eligible.length === 1);
  deepEqual([engine!.core.modelPath, engine!.core.paused], ['/snapshots/step-1', false]);
});

test('sglang: 400 that says that the weights were updated is a load', async (t) => {
  const scene = await startPair(t, 'sglang');
  scene.failing.core.faults.add(calls.sglang.load, 'fail_flush');
  await scene.swap('step-2');
  const { state, snapshot, error } = await stateOf(scene, scene.failing);
  deepEqual([state, snapshot, error], ['serving', 'step-2', null]);
});

test('if no engine loads a snapshot, one that joins gets the snapshot before', async (t) => {
  const scene = await startPair(t, 'vllm');
  const { failing, other, swap, router } = scene;
  failing.core.faults.add(calls.vllm.load, 'fail_before');
  other.core.faults.add(calls.sglang.load, 'fail_before');
  const { snapshot } = await swap('broken');
  equal(snapshot, 'step-1');
  const [joining] = await startSims(t, ['vllm']);
  await fetch(`${router.url}/add_worker?url=${joining!.url}`, { method: 'POST' });
  await until('it serves', () => router.fleet.eligible.length === 3);
  equal(joining!.core.modelPath, '/snapshots/step-1');
});

test('a storm of 425: nothing reaches the engine, nothing is left', async (t) => {
  const [engine] = await startSims(t, ['vllm']);
  const { router, post: call, untilOver } = await startSwapScene(t, [engine!], { swapTransition: 'sync' });
  const client = await connectClient(t, router.url);
  client.write(post('/v1/completions', { ...long, max_tokens: 20_000 }));
  await until('it generates', () => engine!.stats().running === 1);
  await call('/swap', { identity: 'step-1' });
  const { requests } = engine!.stats();
  for (let round = 0; round < 10; round++) {
    const storm = Array.from({ length: 30 }, () => send(t, router.url, post('/v1/completions', short)));
    for (const { status } of await Promise.all(storm)) equal(status, 425);
  }
  equal(engine!.stats().requests, requests);
  client.end();
  await untilOver();
  equal((await send(t, router.url, post('/v1/completions', short))).status, 200);
  await untilIdle(router);
});

test('a plugin can send no request to an engine with unknown weights', async (t) => {
  const [engine] = await startSims(t, ['vllm']);
  const targets = { name: 'targets', classify: (x: ExchangeView) => void (x.target = router.fleet.workers[0]!) };
  const { router, post: call, status } = await startSwapScene(t, [engine!], {}, { plugins: [targets] });
  equal((await send(t, router.url, post('/v1/completions', short))).status, 200);
  engine!.core.faults.add(calls.vllm.load, 'fail_half', Infinity);
  await call('/swap', { identity: 'step-1' });
  await until('it is known', async () => (await status()).workers[0]!.state === 'quarantined');
  const { requests } = engine!.stats();
  equal((await send(t, router.url, post('/v1/completions', short))).status, 425);
  equal(engine!.stats().requests, requests);
});
