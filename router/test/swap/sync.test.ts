import { deepEqual, equal, notEqual, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { metric } from '../admission/metric.ts';
import { connectClient, send } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { holdLoads, startSims, startSwapScene } from '../harness/swap-scene.ts';
import { until } from '../harness/within.ts';

const long = { prompt: 'go on', max_tokens: 400, ignore_eos: true, stream: true, temperature: 0 };
const short = { prompt: 'go on', max_tokens: 4, ignore_eos: true };
const SYNC = { swapTransition: 'sync', policy: 'round_robin' };

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: requests in flight finish with the old weights, new ones get 425 meanwhile`, async (t) => {
    let requests = 0;
    // The second one can't end before it is released.
    const script = () => (++requests === 2 ? { ids: [], holdAt: 300 } : undefined);
    const [engine] = await startSims(t, [kind], { weightLoadMs: 500, script });
    const { router, post: call, untilOver } = await startSwapScene(t, [engine!], SYNC);
    const undisturbed = (await send(t, router.url, post('/v1/completions', long))).text;
    const client = await connectClient(t, router.url);
    client.write(post('/v1/completions', long));
    await until('it generates', () => engine!.stats().running === 1);

    await call('/swap', { identity: 'step-1' });
    const refused = await send(t, router.url, post('/v1/completions', short));
    equal(refused.status, 425);
    equal(refused.get('x-turnout-error'), 'model_not_ready');
    equal(engine!.stats().paused, false, 'it is not paused before its requests have ended');
    const openSecs = (): Promise<number> => metric(router, 'turnout_swap_open_seconds');
    ok((await openSecs()) > 0, 'the swap is open');
    engine!.core.release(() => true);
    const { text, status } = await client.answer('POST');
    equal(status, 200);
    equal(tokensOf(text), tokensOf(undisturbed), 'every token is of the old weights');

    const { workers } = await untilOver();
    equal(workers[0]!.snapshot, 'step-1');
    const metrics = await (await fetch(`${router.url}/metrics`)).text();
    const value = (name: string): number => Number(metrics.split(`\n${name} `)[1]?.split('\n')[0]);
    equal(value('turnout_swaps_total{outcome="done"}'), 1);
    equal(value('turnout_swap_duration_seconds_count'), 1);
    equal(await openSecs(), 0);
    equal(value('turnout_swap_refused_requests_total'), 1);
    equal(value('turnout_swap_engines{state="serving"}'), 1);
    ok(value(`turnout_swap_stage_seconds_total{engine="${engine!.url}",stage="load"}`) >= 0.04);
    ok(value(`turnout_swap_stage_seconds_total{engine="${engine!.url}",stage="drain"}`) > 0);
    const after = await send(t, router.url, post('/v1/completions', long));
    notEqual(tokensOf(after.text), tokensOf(undisturbed));
  });
}

test('425 is per worker: one that has finished serves at once, and a session stays where it is', async (t) => {
  const engines = await startSims(t, ['vllm', 'sglang']);
  const options = { swapTransition: 'sync', policy: 'sticky_least_loaded' };
  const { router, post: call, status, untilOver } = await startSwapScene(t, engines, options);
  const ofSession = (key: string, body: object) => post('/v1/completions', body, [`x-session-id: ${key}`]);
  const homeOf = async (key: string): Promise<number> => {
    const before = engines.map((engine) => engine.stats().requests);
    equal((await send(t, router.url, ofSession(key, short))).status, 200);
    return engines.findIndex((engine, i) => engine.stats().requests > before[i]!);
  };
  const [busy, other] = [await homeOf('a'), await homeOf('b')];
  notEqual(busy, other);
  const client = await connectClient(t, router.url);
  client.write(ofSession('a', { ...long, max_tokens: 20_000 }));
  await until('it generates', () => engines[busy]!.stats().running === 1);

  await call('/swap', { identity: 'step-1' });
  const stateOf = async (i: number) => (await status()).workers.find(({ url }) => url === engines[i]!.url)!.state;
  await until('the idle one has finished', async () => (await stateOf(other)) === 'serving');
  equal(await stateOf(busy), 'draining');
  equal(await homeOf('b'), other);
  equal(await homeOf('c'), other, 'a new session goes where it can be served');
  equal((await send(t, router.url, post('/v1/completions', short))).status, 200, 'and what has no session');
  const again = await send(t, router.url, ofSession('a', short));
  deepEqual([again.status, again.get('retry-after')], [425, '1']);

  client.end();
  await untilOver();
  equal(await homeOf('a'), busy, 'the retry comes to its own worker');
});

test('engines one after the other: the others generate', async (t) => {
  const engines = await startSims(t, ['vllm', 'sglang', 'vllm'], { weightLoadMs: 300 });
  const { router, post: call, status } = await startSwapScene(t, engines, { swapConcurrency: 1, policy: 'random' });
  const goOn = holdLoads(t, ...engines);
  await call('/swap', { identity: 'step-1' });
  let rounds = 0;
  for (let isRunning = true; isRunning; rounds++) {
    const answer = await send(t, router.url, post('/v1/completions', short, ['x-fireworks-hot-load-drain-timeout: 0']));
    equal(answer.status, 200, 'none waits');
    const { workers, running } = await status();
    const busy = workers.filter(({ state }) => state === 'swapping');
    ok(busy.length <= 1, JSON.stringify(workers));
    isRunning = running !== null;
    if (rounds === 1) goOn();
  }
  ok(rounds > 1);
  for (const engine of engines) equal(engine.core.weightVersion, 'step-1');
});

test('a swap that waits for requests in flight is undone: nothing has changed', async (t) => {
  const engines = await startSims(t, ['vllm']);
  const { router, post: call, status } = await startSwapScene(t, engines, SYNC);
  const client = await connectClient(t, router.url);
  client.write(post('/v1/completions', { ...long, max_tokens: 20_000 }));
  await until('it generates', () => engines[0]!.stats().running === 1);
  await call('/swap', { identity: 'step-1' });
  equal((await send(t, router.url, post('/v1/completions', short))).status, 425);

  equal((await fetch(`${router.url}/swap`, { method: 'DELETE' })).status, 202);

  equal((await send(t, router.url, post('/v1/completions', short))).status, 200);
  const { workers, running } = await status();
  deepEqual([running, workers[0]!.snapshot], [null, 'base']);
  equal(engines[0]!.core.modelPath, 'sim');
  equal(engines[0]!.stats().running, 1);
});

test('a swap that has loaded is undone: the engines go back to what they had', async (t) => {
  const engines = await startSims(t, ['vllm', 'sglang']);
  const { router, swap, post: call, untilOver, status } = await startSwapScene(t, engines, { swapConcurrency: 1 });
  await swap('step-1');
  // The swap is not over before it is undone: the second of them waits.
  const isUndone = Promise.withResolvers<void>();
  let loads = 0;
  for (const { core } of engines) {
    const load = core.loadWeights.bind(core);
    t.mock.method(core, 'loadWeights', async (path: string, version: string | undefined) => {
      if (++loads === 2) await isUndone.promise;
      await load(path, version);
    });
  }
  await call('/swap', { identity: 'step-2' });
  await until('one has loaded', async () => (await status()).workers.some(({ snapshot }) => snapshot === 'step-2'));

  // A client that did not get the answer repeats it.
  for (let i = 0; i < 2; i++) await fetch(`${router.url}/swap`, { method: 'DELETE' });
  isUndone.resolve();

  const { workers } = await untilOver();
  deepEqual(
    workers.map(({ snapshot, state }) => [snapshot, state]),
    [
      ['step-1', 'serving'],
      ['step-1', 'serving'],
    ],
  );
  for (const engine of engines) deepEqual([engine.core.modelPath, engine.stats().paused], ['/snapshots/step-1', false]);
});

for (const [when, isCleared] of [
  ['', false],
  [', also after the ledger was cleared', true],
] as const) {
  test(`an undo loads the snapshot of before from where the swap to it found it${when}`, async (t) => {
    const [engine, late] = await startSims(t, ['vllm', 'vllm']);
    const { router, swap, post: call, untilOver } = await startSwapScene(t, [engine!], {});
    await swap('step-1', { path: '/elsewhere/step-1' });
    const ledger = `${router.url}/v1/accounts/any/deployments/dep/ledger`;
    if (isCleared) equal((await fetch(ledger, { method: 'DELETE' })).status, 200);
    const { core } = engine!;
    const load = core.loadWeights.bind(core);
    let loads = 0;
    t.mock.method(core, 'loadWeights', async (path: string, version: string | undefined) => {
      if (++loads === 1) equal((await fetch(`${router.url}/swap`, { method: 'DELETE' })).status, 202);
      await load(path, version);
    });
    await call('/swap', { identity: 'step-2', path: '/elsewhere/step-2' });
    const { snapshot } = await untilOver();
    deepEqual([loads, snapshot, core.modelPath], [2, 'step-1', '/elsewhere/step-1']);
    await call(`/add_worker?url=${late!.url}`);
    await until('both serve', () => router.fleet.eligible.length === 2);
    equal(late!.core.modelPath, '/elsewhere/step-1');
  });
}

test('an undo that is repeated while it runs goes on', async (t) => {
  const [engine] = await startSims(t, ['vllm']);
  const { router, swap, post: call, untilOver, status } = await startSwapScene(t, [engine!], {});
  await swap('step-1');
  const { core } = engine!;
  const load = core.loadWeights.bind(core);
  const held = Promise.withResolvers<void>();
  const undo = (): Promise<Response> => fetch(`${router.url}/swap`, { method: 'DELETE' });
  let loads = 0;
  t.mock.method(core, 'loadWeights', async (path: string, version: string | undefined) => {
    loads++;
    if (loads === 1) await undo();
    else await held.promise;
    await load(path, version);
  });
  await call('/swap', { identity: 'step-2' });
  await until('the engine goes back', async () => loads === 2 && (await status()).running !== null);
  equal((await undo()).status, 202);
  held.resolve();
  const { workers } = await untilOver();
  deepEqual([workers[0]!.snapshot, core.modelPath], ['step-1', '/snapshots/step-1']);
});

test('a worker that leaves while its requests end holds up no later swap', async (t) => {
  const engines = await startSims(t, ['vllm', 'sglang']);
  const { router, post: call, untilOver, swap } = await startSwapScene(t, engines, SYNC);
  const clients = await Promise.all(engines.map(() => connectClient(t, router.url)));
  for (const client of clients) client.write(post('/v1/completions', { ...long, max_tokens: 1_000 }));
  await until('both generate', () => engines.every((engine) => engine.stats().running === 1));
  await call('/swap', { identity: 'step-1' });
  await fetch(`${router.url}/remove_worker?url=${engines[0]!.url}`, { method: 'POST' });
  for (const client of clients) equal((await client.answer('POST')).status, 200);
  await untilOver();
  equal((await swap('step-2')).snapshot, 'step-2');
});

/** The texts of a stream's events. */
const tokensOf = (stream: string): string => [...stream.matchAll(/"text":"([^"]*)"/g)].map(([, text]) => text).join('');
