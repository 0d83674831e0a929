import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { startSimEngine, type SimEngine } from '../engine.ts';
import { decode, encode } from '../tokens/tokenizer.ts';

let sglang: SimEngine;
let vllm: SimEngine;
before(async () => {
  sglang = await startSimEngine({ timeScale: 0 });
  vllm = await startSimEngine({ timeScale: 0, kind: 'vllm' });
});
after(() => Promise.all([sglang.close(), vllm.close()]));

const client = (engine: SimEngine): OpenAI =>
  new OpenAI({ baseURL: `${engine.url}/v1`, apiKey: 'none', maxRetries: 0 });
const messages = [{ role: 'user' as const, content: 'What is the name of the moon?' }];
type Json = Record<string, unknown>;

async function post(
  engine: SimEngine,
  path: string,
  body: object | string,
  headers = {},
): Promise<{ status: number; text: string }> {
  const sent = typeof body === 'string' ? body : JSON.stringify(body);
  const response = await fetch(engine.url + path, { method: 'POST', body: sent, headers });
  return { status: response.status, text: await response.text() };
}

async function json(engine: SimEngine, path: string, body: object, headers = {}): Promise<Json> {
  return JSON.parse((await post(engine, path, body, headers)).text) as Json;
}

function chunks(text: string): Json[] {
  assert.ok(text.endsWith('\n\ndata: [DONE]\n\n'));
  return text
    .split('\n\n')
    .slice(0, -2)
    .map((part) => JSON.parse(part.slice('data: '.length)) as Json);
}

test('the openai client streams a chat to the same text as it gets at once, from both engines', async () => {
  const texts = new Set<string>();
  for (const engine of [sglang, vllm]) {
    const base = { model: 'sim', messages, temperature: 0, max_tokens: 20 };
    const whole = await client(engine).chat.completions.create(base);
    const stream = await client(engine).chat.completions.create({
      ...base,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = '';
    let finish: string | null = null;
    let usage: OpenAI.CompletionUsage | null | undefined;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? '';
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0]!.message.content);
    assert.equal(finish, whole.choices[0]!.finish_reason);
    assert.equal(usage!.completion_tokens, whole.usage!.completion_tokens);
    assert.equal(whole.usage!.prompt_tokens_details!.cached_tokens, 0);
    texts.add(text);
  }
  assert.equal(texts.size, 1, 'equal seeds, equal answers');
});

test('chat logprobs and alternatives', async () => {
  const answer = await client(vllm).chat.completions.create({
    model: 'sim',
    messages,
    temperature: 0,
    max_tokens: 5,
    logprobs: true,
    top_logprobs: 3,
  });
  const content = answer.choices[0]!.logprobs!.content!;
  assert.equal(content.map(({ token }) => token).join(''), answer.choices[0]!.message.content);
  assert.ok(content.every(({ logprob, top_logprobs: top }) => top.length === 3 && top[0]!.logprob === logprob));
});

test('vLLM completions have the fields of 0.32', async () => {
  const body = {
    model: 'sim',
    prompt: [10, 20, 30],
    max_tokens: 4,
    temperature: 0,
    logprobs: 2,
    return_token_ids: true,
    ignore_eos: true,
  };
  const answer = await json(vllm, '/v1/completions', body, { 'x-request-id': 'abc-1' });
  assert.equal(answer.id, 'cmpl-abc-1');
  assert.deepEqual(Object.keys(answer).toSorted(), [
    'choices',
    'created',
    'ec_transfer_params',
    'id',
    'kv_transfer_params',
    'metrics',
    'model',
    'object',
    'service_tier',
    'system_fingerprint',
    'usage',
  ]);
  const [choice] = answer.choices as [Json];
  assert.deepEqual(Object.keys(choice).toSorted(), [
    'finish_reason',
    'index',
    'logprobs',
    'prompt_logprobs',
    'prompt_token_ids',
    'routed_experts',
    'stop_reason',
    'text',
    'token_ids',
  ]);
  assert.deepEqual(choice.prompt_token_ids, [10, 20, 30]);
  assert.equal(choice.text, decode(choice.token_ids as number[]));
  const logprobs = choice.logprobs as { tokens: string[]; text_offset: number[]; top_logprobs: object[] };
  assert.equal(logprobs.tokens.join(''), choice.text);
  assert.deepEqual(logprobs.text_offset.slice(0, 2), [0, logprobs.tokens[0]!.length]);
  assert.deepEqual(answer.usage, {
    prompt_tokens: 3,
    total_tokens: 7,
    completion_tokens: 4,
    prompt_tokens_details: { cached_tokens: 0, created_cache_tokens: null, multimodal_tokens: null },
    completion_tokens_details: null,
  });
  const asIds = await json(vllm, '/v1/completions', { ...body, return_tokens_as_token_ids: true });
  const [{ logprobs: named }] = asIds.choices as [{ logprobs: { tokens: string[] } }];
  assert.deepEqual(
    named.tokens,
    (choice.token_ids as number[]).map((id) => `token_id:${id}`),
  );
});

test('vLLM streams: prompt ids on the first chunk, ids on each, usage on one of its own', async () => {
  const body = {
    model: 'sim',
    prompt: 'Hi',
    max_tokens: 4,
    temperature: 0,
    ignore_eos: true,
    stream: true,
    return_token_ids: true,
    stream_options: { include_usage: true },
  };
  const all = chunks((await post(vllm, '/v1/completions', body)).text);
  assert.equal(all.length, 5);
  const choices = all.slice(0, 4).map((chunk) => (chunk.choices as [Json])[0]);
  assert.deepEqual(
    choices.map((choice) => choice.prompt_token_ids),
    [encode('Hi'), null, null, null],
  );
  assert.deepEqual(
    choices.map((choice) => (choice.token_ids as number[]).length),
    [1, 1, 1, 1],
  );
  assert.deepEqual(
    choices.map((choice) => choice.finish_reason),
    [null, null, null, 'length'],
  );
  assert.ok(all.slice(0, 4).every((chunk) => !('usage' in chunk)));
  assert.deepEqual(all[4]!.choices, []);
  assert.deepEqual(all[4]!.usage, {
    prompt_tokens: 2,
    total_tokens: 6,
    completion_tokens: 4,
    prompt_tokens_details: { cached_tokens: 0 },
  });
});

test('--stream-interval: the first token comes at once, then so many an event, and the rest at the end', async (t) => {
  const engine = await startSimEngine({ timeScale: 0, kind: 'vllm', streamInterval: 4 });
  t.after(() => engine.close());
  const asked = { model: 'sim', prompt: 'x', max_tokens: 11, ignore_eos: true, stream: true, return_token_ids: true };
  const events = chunks((await post(engine, '/v1/completions', asked)).text);
  const counts = events.map(({ choices }) => (choices as { token_ids: number[] }[])[0]!.token_ids.length);
  assert.deepEqual(counts, [1, 4, 4, 2]);
});

test('SGLang’s chat: the role comes first, the end says nothing else, usage has a chunk of its own', async () => {
  const body = { messages, max_tokens: 3, temperature: 0, ignore_eos: true };
  const whole = await json(sglang, '/v1/chat/completions', body);
  const { message } = (whole.choices as [{ message: Json }])[0];
  assert.deepEqual(Object.keys(message).toSorted(), ['content', 'reasoning_content', 'role']);
  const streamed = { ...body, stream: true, stream_options: { include_usage: true } };
  const all = chunks((await post(sglang, '/v1/chat/completions', streamed)).text);
  const usage = all.pop()!;
  assert.deepEqual([usage.choices, usage.usage], [[], whole.usage]);
  assert.ok(all.every((chunk) => !('usage' in chunk)));
  const deltas = all.map((chunk) => (chunk.choices as [{ delta: Json }])[0].delta);
  assert.deepEqual(deltas.shift(), { reasoning_content: null, role: 'assistant', content: '' });
  assert.deepEqual(deltas.pop(), { reasoning_content: null });
  assert.ok(deltas.every((delta) => Object.keys(delta).join() === 'reasoning_content,content'));
  assert.equal(deltas.map((delta) => delta.content as string).join(''), message.content);
});

test('chat ids: vLLM puts prompt ids at the top, SGLang in the choice', async () => {
  const body = { model: 'sim', messages, max_tokens: 3, temperature: 0, ignore_eos: true, return_token_ids: true };
  const fromVllm = await json(vllm, '/v1/chat/completions', body);
  const fromSglang = await json(sglang, '/v1/chat/completions', { ...body, return_meta_info: true });
  const prompt = encode(`<|im_start|>user\n${messages[0]!.content}<|im_end|>\n<|im_start|>assistant\n`);
  assert.deepEqual(fromVllm.prompt_token_ids, prompt);
  const [choice] = fromSglang.choices as [Json & { meta_info: { output_token_logprobs: unknown[] } }];
  assert.deepEqual(choice.prompt_token_ids, prompt);
  assert.deepEqual(choice.response_token_ids, (fromVllm.choices as [Json])[0].token_ids);
  assert.equal(choice.meta_info.output_token_logprobs.length, 3);
  assert.deepEqual(fromSglang.metadata, {
    weight_version: 'default',
    weight_versions: [{ version: 'default', start: 0, end: 3 }],
  });
  const withIds = await json(sglang, '/v1/chat/completions', { ...body, messages: [], input_ids: prompt });
  assert.deepEqual((withIds.choices as [Json])[0].response_token_ids, choice.response_token_ids);
});

test('n and lists of prompts: one choice each, prompts counted once', async () => {
  const body = {
    model: 'sim',
    prompt: [
      [1, 2],
      [3, 4, 5],
    ],
    n: 2,
    max_tokens: 40,
    ignore_eos: true,
    seed: 1,
  };
  const answer = await json(vllm, '/v1/completions', body);
  const choices = answer.choices as { index: number; text: string }[];
  assert.deepEqual(
    choices.map(({ index }) => index),
    [0, 1, 2, 3],
  );
  assert.equal(new Set(choices.map(({ text }) => text)).size, 4);
  assert.equal((answer.usage as { prompt_tokens: number }).prompt_tokens, 5);
});

test('each refuses in its own words', async () => {
  const unknown = await json(vllm, '/v1/completions', { model: 'nope', prompt: 'a' });
  assert.deepEqual(unknown, {
    error: {
      message: 'The model `nope` does not exist. Valid aliases: sim.',
      type: 'NotFoundError',
      param: 'model',
      code: 404,
    },
  });
  assert.equal((await post(sglang, '/v1/completions', { model: 'nope', prompt: 'a' })).status, 200);
  const [bad, refused] = ['Bad Request', 'BadRequestError'];
  const cases: [path: string, body: object | string, param: string, vllmType: string, sglangType: string][] = [
    ['completions', {}, 'body.prompt', bad, bad],
    ['completions', { prompt: '' }, 'prompt', refused, refused],
    ['completions', { prompt: 'a', max_tokens: -1 }, 'max_tokens', refused, bad],
    ['completions', { prompt: 'a', max_tokens: 99_999 }, 'input_tokens', refused, refused],
    ['completions', { prompt: 'a', n: 0 }, 'n', refused, refused],
    ['completions', '{"a":', 'body.5', bad, bad],
    ['completions', '{"prompt": [1, 2', 'body.16', bad, bad],
    ['completions', '[1]', 'body', bad, bad],
    ['chat/completions', 'hello', 'body.0', bad, bad],
    ['chat/completions', {}, 'body.messages', bad, bad],
    ['chat/completions', { messages, max_tokens: -1 }, 'max_tokens', refused, refused],
    ['chat/completions', { messages, stop: 5 }, 'body.stop', bad, bad],
  ];
  for (const [path, body, param, vllmType, sglangType] of cases) {
    const fromVllm = await post(vllm, `/v1/${path}`, body);
    const { error } = JSON.parse(fromVllm.text) as { error: Json };
    const { message, ...rest } = error;
    assert.deepEqual([fromVllm.status, rest], [400, { type: vllmType, param, code: 400 }]);
    const fromSglang = await post(sglang, `/v1/${path}`, body);
    const words = { object: 'error', message, type: sglangType, param: null, code: 400 };
    assert.deepEqual([fromSglang.status, JSON.parse(fromSglang.text)], [400, words]);
  }
  assert.equal((await fetch(`${vllm.url}/v1/completions`)).status, 405);
  assert.equal((await fetch(`${vllm.url}/nothing`)).status, 404);
});

test('an unknown model, adapter or data-parallel rank is refused as the engines do it', async () => {
  const status = async (engine: SimEngine, path: string, body: object, rank?: string): Promise<number> =>
    (await post(engine, path, body, rank === undefined ? {} : { 'x-data-parallel-rank': rank })).status;
  const message = { max_tokens: 2, messages };
  assert.equal(await status(vllm, '/v1/messages', { ...message, model: 'nope' }), 404);
  assert.equal(await status(vllm, '/v1/responses', { max_output_tokens: 2, input: 'a', model: 'nope' }), 404);
  assert.equal(await status(sglang, '/v1/messages', { ...message, model: 'nope' }), 200);
  assert.equal(await status(sglang, '/v1/completions', { prompt: 'a', model: 'sim:nope' }), 400);

  const completion = { prompt: 'a', max_tokens: 1 };
  const statuses = (engine: SimEngine, path: string, body: object): Promise<number[]> =>
    Promise.all(['0', '1', 'x'].map((rank) => status(engine, path, body, rank)));
  assert.deepEqual(await statuses(vllm, '/v1/completions', completion), [200, 400, 200]);
  assert.deepEqual(await statuses(sglang, '/v1/completions', completion), [200, 400, 400]);
  const generation = { text: 'a', sampling_params: { max_new_tokens: 1 } };
  assert.deepEqual(await statuses(sglang, '/generate', generation), [200, 200, 200], 'the header is not read there');
  assert.deepEqual(await json(sglang, '/generate', { ...generation, routed_dp_rank: 3 }), {
    error: { message: 'routed_dp_rank=3 out of range [0, 1)' },
  });
});
