import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, send } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { holdLoads, startSims, startSwapScene } from '../harness/swap-scene.ts';
import { until } from '../harness/within.ts';

const long = { prompt: 'go on', max_tokens: 1_000, ignore_eos: true, stream: true };
/** It can't end before it is released. */
const script = () => ({ ids: [], holdAt: 900 });
const short = { prompt: 'go on', max_tokens: 4, ignore_eos: true };

test('streams go on over the same connection with the new weights', async (t) => {
  const engines = await startSims(t, ['vllm', 'sglang'], { script });
  const { router, swap } = await startSwapScene(t, engines, { policy: 'round_robin' });
  const clients = await Promise.all(engines.map(() => connectClient(t, router.url)));
  for (const client of clients) client.write(post('/v1/completions', long));
  await until('both generate', () => engines.every((engine) => engine.stats().running === 1));

  const status = await swap('step-1');

  deepEqual(
    status.workers.map(({ state, snapshot, error }) => [state, snapshot, error]),
    [
      ['serving', 'step-1', null],
      ['serving', 'step-1', null],
    ],
  );
  for (const [i, engine] of engines.entries()) {
    equal(engine.core.modelPath, '/snapshots/step-1');
    equal(engine.core.weightVersion, 'step-1');
    equal(engine.stats().paused, false);
    equal(engine.stats().running, 1, 'it generates still');
    equal(clients[i]!.hasEnded, false);
  }
  for (const [i, engine] of engines.entries()) {
    engine.core.release(() => true);
    const { status: code, text } = await clients[i]!.answer('POST');
    equal(code, 200);
    ok(text.endsWith('data: [DONE]\n\n'));
    equal(engine.stats().generatedTokens, 1_000, 'no token was made twice');
  }
});

test('new requests wait while the weights are loaded, and none fails', async (t) => {
  const engines = await startSims(t, ['vllm', 'sglang']);
  const goOn = holdLoads(t, ...engines);
  const { router, post: call, untilOver } = await startSwapScene(t, engines);
  await call('/swap', { identity: 'step-1' });
  await until('the engines are paused', () => engines.every((engine) => engine.stats().paused));
  const before = engines.map((engine) => engine.stats().requests);

  const answers = Array.from({ length: 20 }, () => send(t, router.url, post('/v1/completions', short)));
  await until('they wait', async () => {
    const { total } = (await (await fetch(`${router.url}/requests`)).json()) as { total: number };
    return total === 20;
  });
  deepEqual(
    engines.map((engine) => engine.stats().requests),
    before,
    'no engine has got one',
  );
  deepEqual(
    router.fleet.workers.map((worker) => router.fleet.load(worker)),
    [0, 0],
    'and none counts as in flight',
  );
  goOn();
  for (const answer of await Promise.all(answers)) equal(answer.status, 200);
  await untilOver();
});

test('a request may say how long it waits', async (t) => {
  const engines = await startSims(t, ['vllm']);
  const goOn = holdLoads(t, ...engines);
  const { router, post: call, untilOver } = await startSwapScene(t, engines);
  await call('/swap', { identity: 'step-1' });
  await until('the engine is paused', () => engines[0]!.stats().paused);

  const impatient = ['x-fireworks-hot-load-drain-timeout: 0.02'];
  const answer = await send(t, router.url, post('/v1/completions', short, impatient));

  equal(answer.status, 425);
  equal(answer.get('x-should-retry'), 'true');
  equal(answer.get('retry-after-ms'), '1000');
  ok(answer.text.includes('"code":"model_not_ready"') && answer.text.includes('hot loading'), answer.text);
  const wrong = await send(t, router.url, post('/v1/completions', short, ['x-fireworks-hot-load-drain-timeout: soon']));
  equal(wrong.status, 400);
  goOn();
  await untilOver();
});

test('an operator may say how long requests wait; what their clients say counts more', async (t) => {
  const engines = await startSims(t, ['vllm']);
  const goOn = holdLoads(t, ...engines);
  const { router, post: call, untilOver } = await startSwapScene(t, engines, { swapWaitSecs: 0.05 });
  await call('/swap', { identity: 'step-1' });
  await until('the engine is paused', () => engines[0]!.stats().paused);
  const patient = ['x-fireworks-hot-load-drain-timeout: 60'];
  const waits = send(t, router.url, post('/v1/completions', short, patient));
  equal((await send(t, router.url, post('/v1/completions', short))).status, 425);
  goOn();
  equal((await waits).status, 200);
  await untilOver();
});

test('what it is asked for again is not loaded again', async (t) => {
  const engines = await startSims(t, ['sglang']);
  const { swap } = await startSwapScene(t, engines);
  await swap('step-1');
  engines[0]!.core.modelPath = 'as it was';

  const { swaps } = await swap('step-1');

  equal(engines[0]!.core.modelPath, 'as it was');
  equal(swaps.length, 1);
});

test('a swap can be repeated, and names are checked', async (t) => {
  const engines = await startSims(t, ['sglang', 'vllm']);
  const { swap, post: call, status } = await startSwapScene(t, engines);
  for (const identity of ['a', 'b', 'a']) await swap(identity);
  equal((await status()).snapshot, 'a');
  for (const engine of engines) equal(engine.core.weightVersion, 'a');
  for (const identity of ['..', '.', 'a/b', '', 'ü']) equal((await call('/swap', { identity })).status, 400, identity);
});

test('one swap at a time; the newest signal is the next', async (t) => {
  const engines = await startSims(t, ['sglang', 'vllm']);
  const goOn = holdLoads(t, ...engines);
  const { post: call, untilOver } = await startSwapScene(t, engines);
  const states = [];
  for (const identity of ['a', 'a', 'b', 'c']) states.push(await (await call('/swap', { identity })).json());
  deepEqual(states, [
    { identity: 'a', state: 'started' },
    { identity: 'a', state: 'started' },
    { identity: 'b', state: 'queued' },
    { identity: 'c', state: 'queued' },
  ]);
  goOn();
  const { swaps, snapshot } = await untilOver();
  deepEqual(
    swaps.map(({ identity }) => identity),
    ['c', 'a'],
  );
  equal(snapshot, 'c');
});

test('the pause of a swap is no silence: timeouts of streams and first bytes do not count it', async (t) => {
  const [engine] = await startSims(t, ['sglang'], { weightLoadMs: 8_000 });
  const options = { streamIdleTimeoutSecs: 0.5, firstByteTimeoutSecs: 0.5 };
  const { router, swap } = await startSwapScene(t, [engine!], options);
  const client = await connectClient(t, router.url);
  client.write(post('/v1/completions', long));
  await until('it generates', () => engine!.stats().running === 1);
  await swap('step-1');
  ok((await client.answer('POST')).text.endsWith('data: [DONE]\n\n'));
});
