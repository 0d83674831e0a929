import { deepEqual, equal } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { holdLoads, startSims, startSwapScene } from '../harness/swap-scene.ts';
import { until } from '../harness/within.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const TENSORS = '/update_weights_from_tensor';

/** What clients read of the weights of an answer. */
async function labelOf(url: string): Promise<(string | null)[]> {
  const body = JSON.stringify({ model: 'accounts/a/models/sim', prompt: 'go on', max_tokens: 3 });
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(`${url}/inference/v1/completions`, { method: 'POST', headers, body });
  equal(answer.status, 200);
  return [answer.headers.get('x-turnout-snapshot'), ((await answer.json()) as { model: string }).model];
}

const NONE = [null, 'sim'];

const startOne = async (t: TestContext, dataDir = temporaryFolder(t)) => {
  const [engine] = await startSims(t, ['sglang']);
  return { engine: engine!, ...(await startSwapScene(t, [engine!], { dataDir })) };
};

for (const isPaused of [true, false]) {
  const how = isPaused ? 'under a bare pause' : 'without a pause';
  test(`an update without a name ${how}: the answers of the engine have no snapshot, and it goes on serving`, async (t) => {
    const { router, engine, post, status, swap } = await startOne(t);
    for (const before of ['base', 'step-1']) {
      if (before !== 'base') await swap(before);
      equal((await labelOf(router.url))[0], before);
      for (let round = 0; round < 2; round++) {
        if (isPaused) await post('/pause_generation', { mode: 'in_place' });
        equal((await post(TENSORS, { flush_cache: false })).status, 200);
        if (isPaused) await post('/continue_generation');
        deepEqual(await labelOf(router.url), NONE);
        const [worker] = (await status()).workers;
        deepEqual([worker!.state, worker!.snapshot], ['serving', null]);
      }
    }

    await swap('step-1');
    equal(engine.core.modelPath, '/snapshots/step-1', 'the snapshot of before is loaded again');
    equal((await labelOf(router.url))[0], 'step-1');
    await post(TENSORS, { flush_cache: false, weight_version: '7' });
    equal((await labelOf(router.url))[0], '7');
  });
}

test('vllm that names no weights: an update leaves it without a snapshot', async (t) => {
  const engines = await startSims(t, ['vllm']);
  const { core } = engines[0]!;
  for (const path of ['/weight_info', '/update_weight_version']) core.faults.add(path, 'fail_before', Infinity);
  const { router, post, swap } = await startSwapScene(t, engines);
  await swap('step-1');
  equal((await labelOf(router.url))[0], 'step-1');
  equal((await post('/collective_rpc', { method: 'reload_weights', kwargs: { weights_path: '/other' } })).status, 200);
  deepEqual(await labelOf(router.url), NONE);
});

test('a pause without an update, and an update that the engine refuses, leave the snapshot', async (t) => {
  const engines = await startSims(t, ['vllm']);
  const { router, post, swap } = await startSwapScene(t, engines);
  await swap('step-1');
  await post('/pause?mode=keep&clear_cache=false');
  equal((await post(TENSORS)).status, 404);
  await post('/resume');
  equal((await post(TENSORS)).status, 404);
  equal((await labelOf(router.url))[0], 'step-1');
});

test('weights without a name have none after a restart of the router', async (t) => {
  for (const snapshot of ['base', 'step-1']) {
    const dataDir = temporaryFolder(t);
    const { router, engine, post, swap } = await startOne(t, dataDir);
    if (snapshot !== 'base') await swap(snapshot);
    await post(TENSORS, { flush_cache: false });
    deepEqual(await labelOf(router.url), NONE);
    await router.close();

    const after = await startSwapScene(t, [engine], { dataDir });
    deepEqual(await labelOf(after.router.url), NONE);
    equal(engine.core.modelPath, 'weights unnamed', 'nothing was loaded');
  }
});

test('an engine that joins, or leaves and joins again, while a trainer updates weights', async (t) => {
  const engines = await startSims(t, ['sglang', 'sglang'], { weightLoadMs: 10_000 });
  const [, joins] = engines.map(({ url }) => url);
  const updates = (): number => engines[1]!.core.faults.calls.filter((path) => path === TENSORS).length;
  for (const [named, again] of [
    [false, false],
    [true, false],
    [true, true],
  ]) {
    const name = named ? `named-${String(again)}` : null;
    const { router, post, status } = await startSwapScene(t, engines.slice(0, 1));
    const { fleet } = router;
    if (again) await post('/workers', { url: joins });
    const areServing = async () => (await status()).workers.every(({ state }) => state === 'serving');
    if (again) await until('both serve', areServing);
    else fleet.add(joins!, { isOperators: true });
    const before = updates();
    const goOn = holdLoads(t, ...(again ? engines : []));
    const update = post(TENSORS, { flush_cache: false, ...(name === null ? {} : { weight_version: name }) });
    if (again) {
      await until('the engine has the update', () => updates() > before);
      fleet.remove(fleet.named(joins!)[0]!);
      fleet.add(joins!, { isOperators: true });
      goOn();
    }
    await until('both serve', areServing);
    equal((await update).status, 200);
    await until('and have the weights', async () =>
      (await status()).workers.every(({ state, snapshot }) => state === 'serving' && snapshot === name),
    );
    await router.close();
  }
});
