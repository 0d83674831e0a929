import { deepEqual, equal } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { type EngineRequest, answer, startEngine } from '../harness/engine.ts';
import { post, startFleetScene } from '../harness/fleet.ts';
import { policyModule } from '../harness/policy-module.ts';
import { startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

/** Says how often it was told that a worker's cache is empty, by URL. */
const COUNTS_FLUSHES = `({ builtIn }) => {
  const flushes = {};
  return {
    ...builtIn('least_inflight'),
    flushed: (worker) => { flushes[worker.url] = (flushes[worker.url] ?? 0) + 1; },
    describe: () => flushes,
  };
}`;

async function startCounting(t: TestContext) {
  const { router, engines } = await startFleetScene(t, 2, { policy: policyModule(t, COUNTS_FLUSHES) });
  const [first, second] = engines as [(typeof engines)[0], (typeof engines)[0]];
  const ask = (target: string) => send(t, router.url, post(target, {}));
  const flushes = async (): Promise<[number, number]> => {
    const { text } = await send(t, router.url, request('GET', '/policies'));
    const { state } = (JSON.parse(text) as { policies: { state: Record<string, number> }[] }).policies[0]!;
    return [state[first.url] ?? 0, state[second.url] ?? 0];
  };
  return { first, second, ask, flushes };
}

test('policies are called for the workers whose caches were cleared, and for no others', async (t) => {
  const { first, second, ask, flushes } = await startCounting(t);
  for (const still of ['/pause?mode=keep&clear_cache=false', '/pause?clear_cache=0', '/pause_generation'])
    await ask(still);
  deepEqual(await flushes(), [0, 0]);
  await ask('/root/flush_cache');
  deepEqual(await flushes(), [1, 1]);
  second.onRequest = ({ connection }) => connection.write(answer(500, ''));
  equal((await ask('/update_weights_from_disk')).status, 207);
  deepEqual(await flushes(), [2, 1]);
  await ask(`/reset_prefix_cache?worker=${first.url}`);
  await ask(`/reset_prefix_cache?worker=${second.url}`);
  deepEqual(await flushes(), [3, 1]);
  await ask('/pause?mode=keep');
  deepEqual(await flushes(), [4, 1]);
  await ask(`/root/pause?worker=${first.url}`);
  deepEqual(await flushes(), [5, 1]);
});

test('policies are called for each engine as it responds, not when the slowest has responded', async (t) => {
  const { second, ask, flushes } = await startCounting(t);
  const slow = Promise.withResolvers<void>();
  second.onRequest = (asked) => void slow.promise.then(() => asked.answer('{}'));
  const reset = ask('/reset_prefix_cache');
  await until('the policy knows of the first engine', async () => (await flushes())[0] === 1);
  deepEqual(await flushes(), [1, 0]);
  slow.resolve();
  equal((await reset).status, 200);
  deepEqual(await flushes(), [1, 1]);
});

/** An SGLang engine with weights of a version that can be changed, and with models. */
async function sglang(t: TestContext, version: string) {
  const state = { version, models: ['base'] };
  const engine = await startEngine(t, {
    control: (path) => {
      if (path === '/health') return answer(200, '');
      if (path === '/model_info')
        return answer(200, JSON.stringify({ model_path: 'm', weight_version: state.version }));
      if (path === '/v1/models') return answer(200, JSON.stringify({ data: state.models.map((id) => ({ id })) }));
      return answer(404, '');
    },
    onRequest: (asked: EngineRequest) =>
      void asked.payload().then((body) => {
        if (asked.target.startsWith('/update_weight_version')) state.version = String(body);
        if (asked.target.startsWith('/load_lora_adapter')) state.models = [...state.models, String(body)];
        asked.answer('{}');
      }),
  });
  return { engine, state, url: engine.url };
}

const CHECKED = { disableHealthCheck: false, healthCheckIntervalSecs: 3_600 };

test('after an update the versions are read anew before the report, and whoever was held back serves', async (t) => {
  const old = await sglang(t, '6');
  const steady = await sglang(t, '7');
  const router = await startTestRouter(t, { ...CHECKED, workerUrls: [steady.url] });
  await until('its version is known', () => router.fleet.workers[0]!.weightVersion === '7');
  router.fleet.add(old.url);
  const held = router.fleet.get(old.url)!;
  await until('the other one is held back', () => held.weightVersion === '6');
  deepEqual(held.reasonNames(), ['version']);
  equal((await send(t, router.url, request('POST', '/update_weight_version', '8'))).status, 200);
  deepEqual(
    router.fleet.workers.map(({ weightVersion }) => weightVersion),
    ['8', '8'],
  );
  await until('it serves', () => router.fleet.eligible.length === 2);
  await send(t, router.url, request('POST', `/update_weight_version?worker=${steady.url}`, '9'));
  await until('that is known too', () => router.fleet.get(steady.url)!.weightVersion === '9');
});

test('requests for an adapter go at once to the worker that was asked to load it', async (t) => {
  const engines = [await sglang(t, '1'), await sglang(t, '1')];
  const router = await startTestRouter(t, { ...CHECKED, workerUrls: engines.map(({ url }) => url) });
  await until('models are known', () => router.fleet.workers.every(({ models }) => models !== null));
  await send(t, router.url, request('POST', `/load_lora_adapter?worker=${engines[1]!.url}`, 'adapter'));
  for (let i = 0; i < 4; i++) await send(t, router.url, post('/v1/completions', { model: 'adapter' }));
  equal(engines[0]!.engine.requests.length, 0);
  equal(engines[1]!.engine.requests.length, 5);
  await send(t, router.url, request('POST', '/load_lora_adapter', 'second'));
  deepEqual(
    router.fleet.workers.map(({ models }) => [...models!.keys()]),
    [
      ['base', 'second'],
      ['base', 'adapter', 'second'],
    ],
  );
});
