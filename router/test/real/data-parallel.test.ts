import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { call } from './call.ts';
import { type Engine, startSglang, startVllm } from './engines.ts';
import { whyNoEngines } from './installed.ts';
import { type Router, startRouter } from './router.ts';
import { until } from './until.ts';

const skip = await whyNoEngines();

const SPLIT_WITHIN_MS = 30_000;

/** A router that has found the two ranks of this engine. */
async function routeTo(t: TestContext, engine: Engine): Promise<Router> {
  t.after(() => engine.stop());
  const router = await startRouter([engine.url], ['--dp-aware', '--health-check-interval-secs', '1'], 2);
  t.after(() => router.stop());
  await until('both ranks serve', SPLIT_WITHIN_MS, async () => {
    const { workers } = JSON.parse((await call(router.url, '/workers')).body) as {
      workers: { dp_rank: number | null; not_serving_because: string[] }[];
    };
    const ranks = workers.filter((worker) => worker.not_serving_because.length === 0).map(({ dp_rank: rank }) => rank);
    return ranks.length === 2 && ranks[0] === 0 && ranks[1] === 1;
  });
  return router;
}

test('vLLM: each rank gets what is sent to it, by the header', { skip }, async (t) => {
  const engine = await startVllm({ args: ['--data-parallel-size', '2'] });
  const router = await routeTo(t, engine);
  const tokens = async (): Promise<number[]> => {
    const { body } = await call(engine.url, '/metrics');
    return [0, 1].map((rank) =>
      Number(new RegExp(`^vllm:generation_tokens_total\\{.*engine="${rank}".*\\} (\\S+)$`, 'm').exec(body)![1]),
    );
  };
  const before = await tokens();
  for (let i = 0; i < 6; i++) {
    const body = { model: 'tiny', prompt: [10, 20, 30], max_tokens: 8, temperature: 0, ignore_eos: true };
    const answer = await call(router.url, '/v1/completions', { body });
    assert.equal(answer.status, 200, answer.body);
  }
  await until('its metrics have both', SPLIT_WITHIN_MS, async () => (await tokens()).every((n, i) => n > before[i]!));
  assert.deepEqual(
    (await tokens()).map((n, i) => n - before[i]!),
    [24, 24],
  );
});

test('SGLang: each rank gets what is sent to it, by header or body as the path wants it', { skip }, async (t) => {
  // Its ranks bind themselves to cores of their own.
  process.env['SGLANG_CPU_OMP_THREADS_BIND'] = '0|1';
  t.after(() => delete process.env['SGLANG_CPU_OMP_THREADS_BIND']);
  const engine = await startSglang({ args: ['--dp-size', '2'] });
  const router = await routeTo(t, engine);
  const ranks: string[] = [];
  for (let i = 0; i < 4; i++) {
    const body = { input_ids: [10, 20, 30], sampling_params: { max_new_tokens: 4, temperature: 0, ignore_eos: true } };
    const answer = await call(router.url, '/generate', { body });
    assert.equal(answer.status, 200, answer.body);
    ranks.push(String((JSON.parse(answer.body) as { meta_info: { dp_rank: unknown } }).meta_info.dp_rank));
  }
  assert.deepEqual(ranks.toSorted(), ['0', '0', '1', '1'], 'two for each');
  const chat = { model: 'tiny', prompt: [10, 20, 30], max_tokens: 4 };
  for (let i = 0; i < 2; i++) assert.equal((await call(router.url, '/v1/completions', { body: chat })).status, 200);
});
