import { deepEqual, equal, match } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { SNAPSHOTS, sceneOf, startSims } from '../harness/swap-scene.ts';
import { until } from '../harness/within.ts';

const PROMPT = 'The quick brown fox jumps over the lazy dog. '.repeat(20);

/** Pairs of simulated SGLang engines whose weights the router swaps. */
async function startPairs(t: TestContext, count: number, options: RouterOptions = {}, sims: Partial<SimOptions> = {}) {
  const finished: FinishedRecord[] = [];
  const onFinished = (record: FinishedRecord): void => void finished.push(record);
  const start = () =>
    startSims(
      t,
      Array.from({ length: count }, () => 'sglang'),
      { onFinished, ...sims },
    );
  const [prefill, decode] = [await start(), await start()];
  const router = await startTestRouter(t, {
    pdDisaggregation: true,
    policy: 'round_robin',
    prefill: prefill.map(({ url }) => url),
    decode: decode.map(({ url }) => url),
    swapSnapshots: SNAPSHOTS,
    healthCheckTimeoutSecs: 60,
    workerHeader: true,
    ...options,
  });
  const scene = await sceneOf(router, [...prefill, ...decode]);
  const ask = (headers: Record<string, string> = {}, body: object = {}): Promise<Response> =>
    fetch(`${router.url}/inference/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify({ model: 'accounts/a/models/sim', prompt: PROMPT, max_tokens: 3, ...body }),
    });
  return { ...scene, prefill, decode, finished, ask };
}

test('a pair whose engines have different weights serves nothing, until one of them gets those of the other', async (t) => {
  const { prefill, swap, ask, finished } = await startPairs(t, 1);
  await swap('v1');
  equal((await ask()).headers.get('x-turnout-snapshot'), 'v1');
  prefill[0]!.core.faults.add('/update_weights_from_disk', 'fail_before');
  deepEqual(new Set((await swap('v2')).workers.map(({ snapshot }) => snapshot)), new Set(['v1', 'v2']));
  finished.length = 0;
  const refused = await ask({ 'x-fireworks-hot-load-drain-timeout': '0' });
  equal(refused.status, 425);
  match(await refused.text(), /No prefill engine has the same weights as a decode engine/);
  const waiting = ask();
  await swap('v2');
  const response = await waiting;
  deepEqual([response.status, response.headers.get('x-turnout-snapshot')], [200, 'v2']);
  await until('both engines are done', () => finished.length === 2);
  for (const { cachedTokens, weightVersions } of finished)
    deepEqual([cachedTokens, weightVersions.map(({ version }) => version)], [0, ['v2']]);
});

test('requests go to the pairs whose engines have the same weights', async (t) => {
  const { prefill, decode, swap, ask, finished } = await startPairs(t, 2);
  await swap('v1');
  for (const engine of [prefill[0]!, decode[1]!]) engine.core.faults.add('/update_weights_from_disk', 'fail_before');
  await swap('v2');
  finished.length = 0;
  const snapshots = new Set<string | null>();
  for (let i = 0; i < 8; i++) {
    const response = await ask(i % 2 === 0 ? {} : { 'x-session-id': `s${i}` });
    equal(response.status, 200);
    await response.arrayBuffer();
    snapshots.add(response.headers.get('x-turnout-snapshot'));
    await until('both engines are done', () => finished.length === 2);
    const used = finished.splice(0).map(({ weightVersions: [version] }) => version!.version);
    equal(new Set([...used, response.headers.get('x-turnout-snapshot')]).size, 1);
  }
  deepEqual(snapshots, new Set(['v1', 'v2']));
});

test('while one engine after the other gets new weights, some pair has the same weights all the time', async (t) => {
  const { prefill, decode, ask, post, status } = await startPairs(t, 2, { swapConcurrency: 1 }, { timeScale: 1 });
  await post('/swap', { identity: 'v1' });
  let isOver = false;
  while (!isOver) {
    const response = await ask({ 'x-fireworks-hot-load-drain-timeout': '0' });
    equal(response.status, 200, await response.text());
    isOver = (await status()).running === null;
  }
  for (const { core } of [...prefill, ...decode]) equal(core.weightVersion, 'v1');
});

test('a response whose prefill engine got other weights than its decode engine meanwhile has no label', async (t) => {
  // The request can't end before it is released.
  const script = () => ({ ids: [], holdAt: 1_500 });
  const { engines, ask, swap } = await startPairs(t, 1, { swapConcurrency: 1 }, { script });
  const response = ask({}, { max_tokens: 2_000, ignore_eos: true });
  await until('both engines have it', () => engines.every((engine) => engine.stats().running === 1));
  await swap('v1');
  for (const { core } of engines) core.release(() => true);
  const { status, headers } = await response;
  deepEqual([status, headers.get('x-turnout-snapshot')], [200, null]);
});

test('a request that waits for a pair goes on when a trainer has given both engines the same weights', async (t) => {
  const { router, prefill, decode, ask, status } = await startPairs(t, 1, { swapWaitSecs: 600 });
  const update = async ({ url }: { url: string }, i: number): Promise<void> => {
    const body = JSON.stringify({ flush_cache: false, weight_version: '7' });
    const headers = { 'content-type': 'application/json', 'x-turnout-worker': url };
    equal((await fetch(`${router.url}/update_weights_from_tensor`, { method: 'POST', headers, body })).status, 200);
    await until(
      'its weights are known',
      async () => (await status()).workers.filter(({ snapshot }) => snapshot === '7').length === i,
    );
  };
  await update(prefill[0]!, 1);
  let snapshot: string | null = null;
  void ask().then(({ headers }) => {
    snapshot = headers.get('x-turnout-snapshot');
  });
  const metrics = async () => (await fetch(`${router.url}/metrics`)).text();
  await until('the request waits', async () => /^turnout_swap_waiting_requests 1$/m.test(await metrics()));
  await update(decode[0]!, 2);
  await until('it has a response', () => snapshot === '7');
});
