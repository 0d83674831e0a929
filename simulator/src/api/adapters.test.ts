import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startSimEngine, type SimEngine } from '../engine.ts';
import type { FinishedRecord } from '../model/sequence.ts';
import type { SimOptions } from '../sim-options.ts';

const start = (options: Partial<SimOptions>): Promise<SimEngine> => startSimEngine({ timeScale: 0, ...options });
let sglang: SimEngine;
let vllm: SimEngine;
before(async () => {
  [sglang, vllm] = await Promise.all([start({ kind: 'sglang' }), start({ kind: 'vllm' })]);
});
after(() => Promise.all([sglang.close(), vllm.close()]));

type Json = Record<string, unknown>;
const post = (engine: SimEngine, path: string, body: object): Promise<Response> =>
  fetch(engine.url + path, { method: 'POST', body: JSON.stringify(body) });
const postJson = async <T = Json>(engine: SimEngine, path: string, body: object): Promise<T> =>
  (await (await post(engine, path, body)).json()) as T;

const prompt = [300, 301, 302, 303];
const adapter = { lora_name: 'step-1', lora_path: '/ckpt/step-1' };

test('an adapter samples with weights of its own, the base with the others, on each endpoint', async () => {
  assert.equal((await post(vllm, '/v1/load_lora_adapter', adapter)).status, 200);
  const loaded = await postJson(sglang, '/load_lora_adapter', adapter);
  assert.deepEqual(loaded['loaded_adapters'], { 'step-1': '/ckpt/step-1' });

  const greedy = { max_tokens: 8, temperature: 0, ignore_eos: true };
  const completions = async (model: string): Promise<unknown> => {
    const body = { model, prompt, return_token_ids: true, ...greedy };
    return (await postJson<{ choices: [Json] }>(vllm, '/v1/completions', body)).choices[0]['token_ids'];
  };
  const inference = async (model: string): Promise<unknown> => {
    const body = { model, token_ids: prompt, sampling_params: greedy };
    return (await postJson<{ choices: [Json] }>(vllm, '/inference/v1/generate', body)).choices[0]['token_ids'];
  };
  const generate = async (name: string): Promise<unknown> => {
    const sampling = { max_new_tokens: 8, temperature: 0, ignore_eos: true };
    const body = { input_ids: prompt, sampling_params: sampling, ...(name === 'sim' ? {} : { lora_path: name }) };
    return (await postJson(sglang, '/generate', body))['output_ids'];
  };
  const [base, own] = [await completions('sim'), await completions('step-1')];
  assert.notDeepEqual(base, own);
  for (const sample of [inference, generate])
    assert.deepEqual([await sample('sim'), await sample('step-1')], [base, own]);
});

test('each prompt of a list may have an adapter of its own, and records say whose session a request was of', async (t) => {
  const records: FinishedRecord[] = [];
  const engine = await start({ onFinished: (record) => records.push(record) });
  t.after(() => engine.close());
  assert.equal((await post(engine, '/load_lora_adapter', adapter)).status, 200);
  const params = { max_new_tokens: 8, temperature: 0, ignore_eos: true };
  const body = { input_ids: [prompt, prompt], sampling_params: [params, params], lora_path: [null, 'step-1'] };
  const [base, own] = await postJson<[Json, Json]>(engine, '/generate', body);
  assert.notDeepEqual(base['output_ids'], own['output_ids']);
  assert.deepEqual(new Set(records.map(({ session }) => session)), new Set([null]));
  const headers = { 'x-session-id': 'sampling_1:2' };
  await fetch(`${engine.url}/generate`, { method: 'POST', headers, body: JSON.stringify({ input_ids: prompt }) });
  assert.equal(records.at(-1)!.session, 'sampling_1:2');
});

test('what is not loaded is refused, as is loading where adapters are off', async () => {
  assert.equal((await post(vllm, '/inference/v1/generate', { model: 'none', token_ids: prompt })).status, 404);
  assert.equal((await post(sglang, '/generate', { input_ids: prompt, lora_path: 'none' })).status, 400);
  assert.equal((await post(sglang, '/unload_lora_adapter', { lora_name: 'none' })).status, 400);
  for (const kind of ['sglang', 'vllm'] as const) {
    const engine = await start({ kind, loraLoading: false });
    const path = kind === 'vllm' ? '/v1/load_lora_adapter' : '/load_lora_adapter';
    assert.equal((await post(engine, path, adapter)).status, kind === 'vllm' ? 404 : 400);
    await engine.close();
  }
});

type Row = Record<string, { logprob: number; rank: number }> | null;

test('vLLM scores a prompt on both endpoints as SGLang does, with as many alternatives as asked for', async () => {
  const scored = { input_ids: prompt, sampling_params: { max_new_tokens: 1 }, return_logprob: true };
  const { meta_info: info } = await postJson<{ meta_info: Json }>(sglang, '/generate', {
    ...scored,
    logprob_start_len: 0,
  });
  const expected = (info['input_token_logprobs'] as [number | null, number][]).map(([logprob]) => logprob);
  const own = (rows: Row[]): (number | null)[] => rows.map((row, i) => row?.[prompt[i]!]?.logprob ?? null);

  const ask = { prompt, max_tokens: 1, prompt_logprobs: 2 };
  const { choices } = await postJson<{ choices: [{ prompt_logprobs: Row[] }] }>(vllm, '/v1/completions', ask);
  const [{ prompt_logprobs: rows }] = choices;
  assert.deepEqual(own(rows), expected);
  assert.ok(rows.slice(1).every((row) => [2, 3].includes(Object.keys(row!).length)));
  assert.ok(rows.slice(1).every((row) => Object.values(row!).some(({ rank }) => rank === 1)));

  const body = { token_ids: prompt, sampling_params: { max_tokens: 1, prompt_logprobs: 0 } };
  const answer = await postJson<{ prompt_logprobs: Row[] }>(vllm, '/inference/v1/generate', body);
  assert.deepEqual(own(answer.prompt_logprobs), expected);
  for (const wrong of [{ prompt_logprobs: 21 }, { stream: true }]) {
    assert.equal((await post(vllm, '/v1/completions', { ...ask, ...wrong })).status, 400);
  }
});
