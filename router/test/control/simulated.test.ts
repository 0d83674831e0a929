import { deepEqual, equal, notEqual, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type SimEngine, startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { connectClient, send } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { reportOf } from './report.ts';

async function startSim(t: TestContext, options: Partial<SimOptions> = {}): Promise<SimEngine> {
  const engine = await startSimEngine(options);
  t.after(() => engine.close());
  return engine;
}

const CHECKED = { disableHealthCheck: false, policy: 'round_robin' };
const endless = { prompt: 'go on', max_tokens: 5_000, ignore_eos: true, stream: true };

test('between two steps of training: abort, wait, new weights, flush, by one call each', async (t) => {
  const engines = await Promise.all([1, 2, 3].map(() => startSim(t)));
  const router = await startTestRouter(t, { ...CHECKED, workerUrls: engines.map(({ url }) => url) });
  await until('all are known', () => router.fleet.workers.every(({ weightVersion }) => weightVersion !== null));
  const call = (path: string, body: object) => send(t, router.url, post(path, body));
  const clients = await Promise.all(engines.map(() => connectClient(t, router.url)));
  for (const client of clients) client.write(post('/v1/completions', endless));
  await until('all generate', () => engines.every((engine) => engine.stats().running === 1));

  equal(reportOf(await call('/abort_request', { abort_all: true })).ok, 3);
  for (const client of clients) ok((await client.answer('POST')).text.endsWith('data: [DONE]\n\n'));
  equal((await call('/fleet/wait_idle', { timeout_secs: 5 })).status, 200);

  const greedy = { prompt: 'who are you', temperature: 0, max_tokens: 8, ignore_eos: true };
  const says = async () => {
    const texts = await Promise.all(
      engines.map(async () => {
        const { text } = await call('/v1/completions', greedy);
        return (JSON.parse(text) as { choices: { text: string }[] }).choices[0]!.text;
      }),
    );
    equal(new Set(texts).size, 1, 'all say the same');
    return texts[0]!;
  };
  const before = await says();
  equal(reportOf(await call('/pause_generation', { mode: 'retract' })).ok, 3);
  const update = await call('/update_weights_from_disk', { model_path: '/weights/2', weight_version: 'step-2' });
  deepEqual([update.status, reportOf(update).ok], [200, 3]);
  deepEqual(
    router.fleet.workers.map(({ weightVersion }) => weightVersion),
    ['step-2', 'step-2', 'step-2'],
  );
  equal(reportOf(await call('/continue_generation', {})).ok, 3);
  equal(reportOf(await call('/flush_cache', {})).ok, 3);
  notEqual(await says(), before);
  equal(router.fleet.eligible.length, 3);
});

test('engines of both kinds with models of their own share a router', async (t) => {
  const actor = await startSim(t, { model: 'actor', timeScale: 0 });
  const judge = await startSim(t, { model: 'judge', timeScale: 0, kind: 'vllm' });
  const router = await startTestRouter(t, { ...CHECKED, workerUrls: [actor.url, judge.url] });
  await until('models are known', () => router.fleet.workers.every(({ models }) => models !== null));
  for (const model of ['actor', 'judge', 'actor', 'actor', 'judge']) {
    const got = await send(t, router.url, post('/v1/completions', { model, prompt: 'x', max_tokens: 2 }));
    deepEqual([got.status, (JSON.parse(got.text) as { model: string }).model], [200, model]);
  }
  equal((await send(t, router.url, post('/v1/completions', { model: 'critic', prompt: 'x' }))).status, 404);
  const loaded = await send(
    t,
    router.url,
    post('/v1/load_lora_adapter', { lora_name: 'critic', lora_path: '/lora' }, [`x-turnout-worker: ${judge.url}`]),
  );
  equal(loaded.status, 200, loaded.text);
  const got = await send(t, router.url, post('/v1/completions', { model: 'critic', prompt: 'x', max_tokens: 2 }));
  equal(got.status, 200);
});
