import { deepEqual, equal } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { policyModule } from '../harness/policy-module.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { startSims } from '../harness/swap-scene.ts';
import { until } from '../harness/within.ts';

const LOAD = { vllm: '/v1/load_lora_adapter', sglang: '/load_lora_adapter' } as const;
type Kind = keyof typeof LOAD;

const nameOf = (kind: Kind, adapter: string): string => (kind === 'sglang' ? `sim:${adapter}` : adapter);

/** Three engines with the adapter `a`. The first one that is left gets each request. */
async function start(t: TestContext, kind: Kind, options: RouterOptions = {}) {
  const sim: Partial<SimOptions> = { kind, timeScale: 1 };
  const engines = await startSims(t, [kind, kind, kind], sim);
  const router = await startTestRouter(t, {
    workerUrls: engines.map(({ url }) => url),
    disableHealthCheck: false,
    healthCheckIntervalSecs: 0.1,
    healthFailureThreshold: 1,
    policy: policyModule(t, `() => ({ needs: 'nothing', choose: (x, workers) => workers[0].alone })`),
    ...options,
  });
  await until('models are known', () => router.fleet.workers.every(({ models }) => models !== null));
  const post = (path: string, body: object): Promise<Response> =>
    fetch(router.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  equal((await post(LOAD[kind], { lora_name: 'a', lora_path: '/loras/a' })).status, 200);
  const restart = async (i: number): Promise<void> => {
    const { port } = engines[i]!;
    const worker = router.fleet.workers[i]!;
    await engines[i]!.kill();
    await until('it is gone', () => worker.problem === 'ECONNREFUSED');
    engines[i] = await startSimEngine({ ...sim, port });
    t.after(() => engines[i]!.close());
    await until('it is back', () => router.fleet.isEligible(worker) && worker.models?.has('a') === false);
  };
  return { router, engines, post, restart };
}

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: the first request after a load at one engine goes to that engine`, async (t) => {
    const { engines, post } = await start(t, kind);
    for (const name of ['b', 'c', 'd']) {
      const target = `${LOAD[kind]}?worker=${encodeURIComponent(engines[2]!.url)}`;
      equal((await post(target, { lora_name: name, lora_path: `/loras/${name}` })).status, 200);
      const response = await post('/v1/completions', { model: nameOf(kind, name), prompt: [300], max_tokens: 1 });
      equal(response.status, 200, await response.text());
    }
    deepEqual(
      engines.map(({ core }) => core.requests),
      [0, 0, 3],
    );
  });

  test(`${kind}: a generation whose engine dies goes on where its adapter is, not where it was before a restart`, async (t) => {
    for (const stream of [true, false]) {
      const { engines, post, restart } = await start(t, kind, { resume: 'on' });
      const prompt = [300, 301, 302];
      const body = {
        model: nameOf(kind, 'a'),
        prompt,
        max_tokens: 400,
        ignore_eos: true,
        seed: 1,
        stream,
        return_token_ids: true,
      };
      const response = post('/v1/completions', body);
      await until('it runs', () => engines[0]!.core.running > 0);
      await restart(1);
      await engines[0]!.kill();
      const { status, text } = await response.then(async (got) => ({ status: got.status, text: await got.text() }));
      equal(status, 200, text);
      deepEqual([engines[1]!.core.requests, engines[2]!.core.requests], [0, 1]);
    }
  });
}
