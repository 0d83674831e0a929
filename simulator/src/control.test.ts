import assert from 'node:assert/strict';
import { type TestContext, after, before, test } from 'node:test';
import { startSimEngine, type SimEngine } from './engine.ts';
import type { FinishedRecord } from './model/sequence.ts';
import type { SimOptions } from './sim-options.ts';

let sglang: SimEngine;
let vllm: SimEngine;
before(async () => {
  sglang = await startSimEngine({ timeScale: 0, pausedHealthDelayMs: 0 });
  vllm = await startSimEngine({ timeScale: 0, kind: 'vllm' });
});
after(() => Promise.all([sglang.close(), vllm.close()]));

async function started(t: TestContext, options: Partial<SimOptions>): Promise<SimEngine> {
  const engine = await startSimEngine(options);
  t.after(() => engine.close());
  return engine;
}

type Json = Record<string, unknown>;
const get = (engine: SimEngine, path: string): Promise<Response> => fetch(engine.url + path);
const getJson = async (engine: SimEngine, path: string): Promise<Json> =>
  (await (await get(engine, path)).json()) as Json;
const post = (engine: SimEngine, path: string, body: object = {}): Promise<Response> =>
  fetch(engine.url + path, { method: 'POST', body: JSON.stringify(body) });
const postJson = async (engine: SimEngine, path: string, body: object = {}): Promise<Json> =>
  (await (await post(engine, path, body)).json()) as Json;

async function greedyText(engine: SimEngine): Promise<string> {
  const body = { prompt: 'who are you', temperature: 0, max_tokens: 8, ignore_eos: true };
  const { choices } = (await postJson(engine, '/v1/completions', body)) as { choices: [{ text: string }] };
  return choices[0].text;
}

async function greedy(engine: SimEngine): Promise<{ text: string; meta_info: Json }> {
  const body = { text: 'who are you', sampling_params: { temperature: 0, max_new_tokens: 8, ignore_eos: true } };
  return (await postJson(engine, '/generate', body)) as { text: string; meta_info: Json };
}

test('each kind answers its own identification and 404 on the other’s', async () => {
  const ofSglang = [
    '/server_info',
    '/get_server_info',
    '/model_info',
    '/get_model_info',
    '/ready',
    '/health_generate',
    '/v1/loads',
  ];
  const ofVllm = ['/version', '/weight_info', '/load', '/is_paused'];
  for (const [own, other, paths] of [
    [sglang, vllm, ofSglang],
    [vllm, sglang, ofVllm],
  ] as const) {
    for (const path of [...paths, '/health', '/v1/models', '/metrics'])
      assert.equal((await get(own, path)).status, 200, path);
    for (const path of paths) assert.equal((await get(other, path)).status, 404, path);
  }
  const generate = await post(vllm, '/generate', { text: 'a' });
  assert.equal(generate.status, 404);
  assert.deepEqual(await generate.json(), { detail: 'Not Found' });
});

test('loads and metrics use the real names', async () => {
  await greedy(sglang);
  const { loads } = (await getJson(sglang, '/v1/loads')) as { loads: [Json] };
  for (const name of [
    'num_running_reqs',
    'num_waiting_reqs',
    'num_used_tokens',
    'max_total_num_tokens',
    'token_usage',
  ]) {
    assert.equal(typeof loads[0][name], 'number');
  }
  assert.match(await (await get(sglang, '/metrics')).text(), /^sglang:num_running_reqs\{model_name="sim"\} 0$/m);
  const text = await (await get(vllm, '/metrics')).text();
  for (const name of [
    'num_requests_running',
    'num_requests_waiting',
    'prefix_cache_queries_total',
    'prefix_cache_hits_total',
  ]) {
    assert.match(text, new RegExp(`^vllm:${name}\\{model_name="sim",engine="0"\\} \\d+$`, 'm'));
  }
});

test('a new label changes the version and not the tokens; new weights change the tokens, the old ones restore them', async () => {
  const before = await greedy(sglang);
  assert.equal((await postJson(sglang, '/update_weight_version', { new_version: 'v2' })).success, true);
  const labelled = await greedy(sglang);
  assert.equal(labelled.text, before.text);
  assert.equal(labelled.meta_info.weight_version, 'v2');
  assert.equal((await getJson(sglang, '/model_info')).weight_version, 'v2');

  const loaded = await postJson(sglang, '/update_weights_from_disk', { model_path: '/step-3', weight_version: 'v3' });
  assert.deepEqual(loaded, {
    success: true,
    message: 'Succeeded to update model weights. Weight version updated to v3.',
    num_paused_requests: 0,
  });
  const swapped = await greedy(sglang);
  assert.notEqual(swapped.text, before.text);
  assert.equal(swapped.meta_info.weight_version, 'v3');
  assert.equal(swapped.meta_info.cached_tokens, 0);
  await post(sglang, '/update_weights_from_disk', { model_path: 'sim' });
  assert.equal((await greedy(sglang)).text, before.text);
});

test('paused: new work waits and continues, health and readiness are 503', async () => {
  assert.deepEqual(await postJson(sglang, '/pause_generation', { mode: 'in_place' }), {
    message: 'Generation paused successfully.',
    status: 'ok',
  });
  assert.equal((await get(sglang, '/health')).status, 503);
  assert.equal((await get(sglang, '/ready')).status, 503);
  const waiting = greedy(sglang);
  while (sglang.stats().waiting === 0) await new Promise((resolve) => setImmediate(resolve));
  await postJson(sglang, '/continue_generation');
  assert.equal((await waiting).meta_info.completion_tokens, 8);
  assert.deepEqual(await postJson(sglang, '/pause_generation', { mode: 'constructor' }), {
    object: 'error',
    message: 'mode must be abort, in_place or retract',
    type: 'Bad Request',
    param: null,
    code: 400,
  });
});

test('vLLM: pause, reload, label, resume; abort by the full id only', async () => {
  const before = await greedyText(vllm);
  assert.deepEqual(await postJson(vllm, '/pause?mode=keep'), { status: 'paused' });
  assert.deepEqual(await getJson(vllm, '/is_paused'), { is_paused: true });
  const body = JSON.stringify({ prompt: 'a', max_tokens: 5 });
  const held = fetch(`${vllm.url}/v1/completions`, { method: 'POST', body, headers: { 'x-request-id': 'r1' } });
  while (vllm.stats().waiting === 0) await new Promise((resolve) => setImmediate(resolve));
  await postJson(vllm, '/abort_requests', { request_ids: ['r1', 'cmpl-r1'] });
  assert.equal(vllm.stats().waiting, 1);
  await postJson(vllm, '/abort_requests', { request_ids: ['cmpl-r1-0'] });
  const { choices } = (await (await held).json()) as { choices: [Json] };
  assert.equal(choices[0].finish_reason, 'abort');
  assert.deepEqual(await postJson(vllm, '/reset_prefix_cache'), { success: true });
  const reload = { method: 'reload_weights', kwargs: { weights_path: '/b' } };
  assert.deepEqual(await postJson(vllm, '/collective_rpc', reload), { results: [null] });
  assert.deepEqual(await postJson(vllm, '/update_weight_version', { new_version: 'b' }), {
    success: true,
    new_version: 'b',
  });
  assert.deepEqual(await getJson(vllm, '/weight_info'), { weight_version: 'b' });
  assert.deepEqual(await postJson(vllm, '/resume'), { status: 'resumed' });
  assert.notEqual(await greedyText(vllm), before);
  assert.equal((await post(vllm, '/pause?mode=other')).status, 400);
});

test('adapters are models', async () => {
  const adapter = { lora_name: 'ad-1', lora_path: '/ad' };
  const load = await post(vllm, '/v1/load_lora_adapter', adapter);
  assert.equal(await load.text(), "Success: LoRA adapter 'ad-1' added successfully.");
  assert.equal((await post(vllm, '/v1/load_lora_adapter', adapter)).status, 400);
  const { data } = (await getJson(vllm, '/v1/models')) as { data: Json[] };
  assert.deepEqual(
    data.map(({ id, parent }) => [id, parent]),
    [
      ['sim', null],
      ['ad-1', 'sim'],
    ],
  );
  assert.equal((await post(vllm, '/v1/completions', { model: 'ad-1', prompt: 'a' })).status, 200);
  assert.equal((await post(vllm, '/v1/unload_lora_adapter', { lora_name: 'ad-1' })).status, 200);
  assert.equal((await post(vllm, '/v1/completions', { model: 'ad-1', prompt: 'a' })).status, 404);
});

test('vLLM says what is wrong with an adapter', async () => {
  const refusal = async (path: string, body: object): Promise<unknown> => (await postJson(vllm, path, body)).error;
  assert.deepEqual(await refusal('/v1/load_lora_adapter', { lora_name: 'ad-2' }), {
    message: 'Field required',
    type: 'Bad Request',
    param: 'body.lora_path',
    code: 400,
  });
  assert.deepEqual(await refusal('/v1/unload_lora_adapter', { lora_name: 'nobody' }), {
    message: "The lora adapter 'nobody' cannot be found.",
    type: 'NotFoundError',
    param: null,
    code: 404,
  });
});

test('a flush answers text without a content type', async () => {
  for (const response of [await post(sglang, '/flush_cache'), await get(sglang, '/flush_cache')]) {
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('content-type'), null);
    assert.match(await response.text(), /^Cache flushed\./);
  }
});

test('text goes to ids and back', async () => {
  const prompt = 'what is this é';
  const fromVllm = await postJson(vllm, '/tokenize', { prompt });
  const { tokens } = fromVllm;
  assert.deepEqual(await postJson(vllm, '/detokenize', { tokens }), { prompt });
  assert.deepEqual(await postJson(sglang, '/detokenize', { tokens }), { text: prompt });
  const { token_strs: strings, ...shared } = fromVllm;
  assert.equal(strings, null);
  assert.deepEqual(await postJson(sglang, '/tokenize', { prompt }), shared);
});

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setImmediate(resolve));
}

const hasTokens = ({ core }: SimEngine): boolean => core.scheduler.running.some(({ output }) => output.length > 0);

test('vLLM: a pause that waits and is resumed meanwhile leaves the engine running', async (t) => {
  const engine = await started(t, { kind: 'vllm', timeScale: 0.1 });
  const running = postJson(engine, '/v1/completions', { prompt: 'a', max_tokens: 40, ignore_eos: true });
  await until(() => hasTokens(engine));
  const paused = postJson(engine, '/pause?mode=wait');
  await until(() => engine.stats().paused);
  await postJson(engine, '/resume');
  await Promise.all([running, paused]);
  assert.notEqual(await greedyText(engine), '');
});

test('vLLM: a pause without clear_cache=false empties the cache, and what is kept is computed again', async (t) => {
  for (const [query, preemptions] of [
    ['&clear_cache=false', 0],
    ['', 1],
  ] as const) {
    const log: number[] = [];
    const onFinished = ({ preemptions: count }: FinishedRecord): void => void log.push(count);
    // It would generate for 40 s: it does not end before the pause, however busy the machine is.
    const engine = await started(t, { kind: 'vllm', onFinished });
    const body = { prompt: 'a b c d e f g h i j k l m n', max_tokens: 4_000, ignore_eos: true };
    const answer = postJson(engine, '/v1/completions', body);
    await until(() => hasTokens(engine));
    await postJson(engine, `/pause?mode=keep${query}`);
    await postJson(engine, '/resume');
    const { generatedTokens } = engine.stats();
    await until(() => engine.stats().generatedTokens > generatedTokens);
    await postJson(engine, '/abort_requests', { request_ids: [] });
    await answer;
    assert.deepEqual(log, [preemptions]);
  }
});

test('vLLM: asleep it is paused, awake it is not', async () => {
  assert.deepEqual(await postJson(vllm, '/sleep?level=1'), { status: 'sleeping', level: 1 });
  assert.deepEqual(await getJson(vllm, '/is_sleeping'), { is_sleeping: true });
  assert.deepEqual(await getJson(vllm, '/is_paused'), { is_paused: true });
  const waiting = greedyText(vllm);
  await until(() => vllm.stats().waiting > 0);
  assert.deepEqual(await postJson(vllm, '/wake_up'), { status: 'awake', tags: null });
  assert.notEqual(await waiting, '');
  assert.deepEqual(await getJson(vllm, '/is_sleeping'), { is_sleeping: false });
});

test('SGLang: an adapter is unloaded when its requests have ended, and new ones are refused at once', async (t) => {
  const engine = await started(t, { timeScale: 0.1 });
  await postJson(engine, '/load_lora_adapter', { lora_name: 'ad', lora_path: '/ad' });
  const params = { max_new_tokens: 60, ignore_eos: true };
  const answer = postJson(engine, '/generate', { text: 'a', lora_path: 'ad', sampling_params: params });
  await until(() => hasTokens(engine));
  const unloaded = postJson(engine, '/unload_lora_adapter', { lora_name: 'ad' });
  await until(() => !engine.core.modelNames.has('ad'));
  assert.equal((await post(engine, '/generate', { text: 'a', lora_path: 'ad' })).status, 400);
  assert.equal((await unloaded).success, true);
  assert.equal(engine.stats().running, 0);
  await answer;
});

test('vLLM: an id aborts all samples of its request; an empty list aborts everything, on its own path nothing', async (t) => {
  const engine = await started(t, { kind: 'vllm', meanOutputTokens: 0 });
  const params = { max_tokens: 2000, n: 2 };
  const generate = (): Promise<Json> =>
    postJson(engine, '/inference/v1/generate', { request_id: 'r', token_ids: [300], sampling_params: params });
  const reasons = async (answer: Promise<Json>): Promise<unknown[]> =>
    ((await answer).choices as Json[]).map((choice) => choice.finish_reason);
  const first = generate();
  await until(() => engine.stats().running === 2);
  await postJson(engine, '/abort_requests', { request_ids: ['r'] });
  assert.equal((await post(engine, '/inference/v1/abort_requests', {})).status, 400);
  assert.equal((await post(engine, '/inference/v1/abort_requests', { request_ids: [] })).status, 200);
  assert.equal(engine.stats().running, 2);
  await post(engine, '/inference/v1/abort_requests', { request_ids: ['generate-tokens-r'] });
  assert.deepEqual(await reasons(first), ['abort', 'abort']);
  const second = generate();
  await until(() => engine.stats().running === 2);
  assert.deepEqual(await postJson(engine, '/abort_requests', { request_ids: [] }), { status: 'aborted', aborted: 2 });
  assert.deepEqual(await reasons(second), ['abort', 'abort']);
});
