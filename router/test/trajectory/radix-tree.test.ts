import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type TestContext, test } from 'node:test';
import { type SimEngine, startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { decode, encode, endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import type { Router } from '../../src/router.ts';
import { type RouterOptions, startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

interface Scene {
  readonly router: Router;
  readonly engine: SimEngine;
  /** What the engine really did. */
  readonly log: FinishedRecord[];
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<{ status: number; text: string }>;
  retrieve(text: string, more?: object): Promise<Retrieved>;
  stats(): Promise<Record<string, number>>;
}

interface Retrieved {
  tokens: number[];
  response: string;
  loss_mask: number[];
  token_length: number;
  loss_mask_length: number;
  rollout_logp: number[];
}

interface Answer {
  text: string;
  output_ids: number[];
  meta_info: {
    output_token_logprobs: [number, number, null][];
    finish_reason: { type: string } | null;
    prompt_tokens: number;
  };
}

async function startWithTree(
  t: TestContext,
  engine: Partial<SimOptions> = {},
  options: RouterOptions = {},
  plugin = 'radix-tree',
): Promise<Scene> {
  const log: FinishedRecord[] = [];
  const sim = await startSimEngine({
    timeScale: 0,
    variedSampling: true,
    retokenizationDrift: true,
    meanOutputTokens: 30,
    onFinished: (record) => log.push(record),
    ...engine,
  });
  t.after(() => sim.close());
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const router = await startTestRouter(t, { workerUrls: [sim.url], tokenizerPath, plugin: [plugin], ...options });
  const post: Scene['post'] = async (path, body, headers = {}) => {
    const response = await fetch(router.url + path, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { 'content-type': 'application/json', ...headers },
    });
    return { status: response.status, text: await response.text() };
  };
  return {
    router,
    engine: sim,
    log,
    post,
    async retrieve(text, more = {}) {
      const { status, text: json } = await post('/retrieve_from_text', { text, ...more });
      assert.equal(status, 200, json);
      return JSON.parse(json) as Retrieved;
    },
    stats: async () => (await (await fetch(`${router.url}/radix_tree/stats`)).json()) as Record<string, number>,
  };
}

async function generate<T = Answer>({ post }: Scene, body: object): Promise<T> {
  const { status, text } = await post('/generate', {
    return_logprob: true,
    sampling_params: { max_new_tokens: 12 },
    ...body,
  });
  assert.equal(status, 200, text);
  return JSON.parse(text) as T;
}

const prompt = '<|im_start|>user\nWhat is of ten?<|im_end|>\n<|im_start|>assistant\n';

test('the next turn continues exactly what was sampled, and its text gives the ids back', async (t) => {
  const scene = await startWithTree(t, { meanOutputTokens: 0 });
  const first = await generate(scene, { text: prompt });
  assert.deepEqual(scene.log[0]!.inputIds, encode(prompt));
  const history = `${prompt}${first.text}`;
  const tool = '<|im_end|>\n<|im_start|>tool\n{"é": 1}<|im_end|>\n<|im_start|>assistant\n';
  const second = await generate(scene, { text: history + tool });
  const known = [...encode(prompt), ...first.output_ids];
  assert.deepEqual(scene.log[1]!.inputIds, [...known, ...encode(tool)]);

  const all = [...known, ...encode(tool), ...second.output_ids];
  const text = history + tool + second.text;
  const answer = await scene.retrieve(text, { return_logp: true });
  const logprobs = (turn: Answer): number[] => turn.meta_info.output_token_logprobs.map(([logprob]) => logprob);
  const zeros = (part: string): number[] => encode(part).map(() => 0);
  const ones = (turn: Answer): number[] => turn.output_ids.map(() => 1);
  assert.deepEqual(answer, {
    tokens: all,
    response: text,
    loss_mask: [...zeros(prompt), ...ones(first), ...zeros(tool), ...ones(second)],
    token_length: all.length,
    loss_mask_length: all.length,
    rollout_logp: [...zeros(prompt), ...logprobs(first), ...zeros(tool), ...logprobs(second)],
    unknown_logprobs: [],
  });
  assert.deepEqual(Object.keys(answer), [
    'tokens',
    'response',
    'loss_mask',
    'token_length',
    'loss_mask_length',
    'rollout_logp',
    'unknown_logprobs',
  ]);
  assert.equal('rollout_logp' in (await scene.retrieve(text, { return_logp: false })), false);
  const stats = await scene.stats();
  assert.equal(stats.prompts, 2);
  assert.equal(stats.hits, 1);
  assert.equal(stats.turns, 2);
  assert.equal(stats.retokenization_mismatches, encode(text).join() === all.join() ? 0 : 2);
});

test('an unknown text is encoded, with mask and logprobs of 0', async (t) => {
  const scene = await startWithTree(t);
  const { tokens, loss_mask: mask, rollout_logp: logprobs } = await scene.retrieve('Hello there é');
  assert.deepEqual(tokens, encode('Hello there é'));
  assert.deepEqual(
    mask,
    tokens.map(() => 0),
  );
  assert.deepEqual(
    logprobs,
    tokens.map(() => 0),
  );
});

test('what is wrong with a question is said', async (t) => {
  const { post, router } = await startWithTree(t);
  const cases: [unknown, RegExp][] = [
    [{}, /"text" has to be a string/],
    [{ text: '' }, /not empty/],
    [{ text: 5 }, /has to be a string/],
    [[], /JSON object/],
    [{ text: 'a', return_logp: 'yes' }, /"return_logp" has to be true or false/],
  ];
  for (const [body, words] of cases) {
    const { status, text } = await post('/retrieve_from_text', body);
    assert.equal(status, 400);
    assert.match((JSON.parse(text) as { error: string }).error, words);
  }
  const broken = await fetch(`${router.url}/retrieve_from_text`, { method: 'POST', body: '{' });
  assert.equal(broken.status, 400);
});

test('lists, samples and streams of both kinds are captured, answers pass as they are', async (t) => {
  for (const incrementalStreamingOutput of [false, true]) {
    const scene = await startWithTree(t, { incrementalStreamingOutput });
    const texts = [prompt, `${prompt}again `];
    const list = await generate<Answer[]>(scene, { text: texts, sampling_params: { max_new_tokens: 9, n: 2 } });
    assert.equal(list.length, 4);
    for (const [i, { text, output_ids: ids }] of list.entries()) {
      const asked = texts[Math.floor(i / 2)]!;
      assert.deepEqual((await scene.retrieve(asked + text)).tokens, [...encode(asked), ...ids]);
    }
    for (const samples of [1, 3]) {
      const asked = `${prompt}stream ${samples} `;
      const { text: stream } = await scene.post('/generate', {
        text: asked,
        stream: true,
        return_logprob: true,
        sampling_params: { max_new_tokens: 15, n: samples },
      });
      assert.ok(stream.endsWith('data: [DONE]\n\n'));
      await untilIdle(scene.router);
      for (const { inputIds, outputIds } of scene.log.slice(-samples)) {
        assert.deepEqual(inputIds, encode(asked));
        const visible = outputIds.at(-1) === endOfTurn ? outputIds.slice(0, -1) : outputIds;
        const got = await scene.retrieve(asked + decode(visible, false));
        assert.deepEqual(got.tokens, [...inputIds, ...outputIds]);
        assert.deepEqual(got.loss_mask, [...inputIds.map(() => 0), ...outputIds.map(() => 1)]);
      }
    }
    const ids = encode(`${prompt}ids`);
    const { output_ids: more, text } = await generate(scene, { input_ids: ids });
    assert.deepEqual((await scene.retrieve(`${prompt}ids${text}`)).tokens, [...ids, ...more]);
    assert.equal((await scene.stats()).uncaptured_answers, 0);
  }
});

test('an aborted generation passes as it is, and goes on from its own tokens', async (t) => {
  const scene = await startWithTree(t, { timeScale: 1, meanOutputTokens: 0 });
  const asked = generate(scene, { text: prompt, rid: 'one', sampling_params: { max_new_tokens: 5000 } });
  await until('it has begun', () => scene.engine.core.running === 1 && scene.engine.core.scheduler.generatedTokens > 3);
  await scene.post('/abort_request', { rid: 'one' });
  const { text, output_ids: ids, meta_info: info } = await asked;
  assert.equal(info.finish_reason?.type, 'abort');
  assert.ok(ids.length > 0);
  await generate(scene, { text: prompt + text });
  assert.deepEqual(scene.log.at(-1)!.inputIds, [...encode(prompt), ...ids]);
});

test('errors of engines and what has no tokens pass as they are', async (t) => {
  const scene = await startWithTree(t);
  for (const body of [
    {},
    { text: 'a', input_ids: [1] },
    { text: 5 },
    { text: 'a', sampling_params: { max_new_tokens: 'x' } },
  ]) {
    const direct = await fetch(`${scene.engine.url}/generate`, { method: 'POST', body: JSON.stringify(body) });
    const { status, text } = await scene.post('/generate', body);
    assert.equal(status, direct.status);
    assert.equal(text, await direct.text());
  }
  const stats = await scene.stats();
  assert.equal(stats.turns, 0);
  assert.equal(stats.uncaptured_answers, 0);
});

test('numbers beyond 2^53 and unknown fields reach the engine as they were written', async (t) => {
  const scene = await startWithTree(t, {}, {}, 'radix-tree:{"verify":false}');
  const seen: string[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (part: Buffer) => (body += part.toString()));
    request.on('end', () => {
      seen.push(body);
      response.end('{}');
    });
  }).listen(0);
  t.after(() => server.close());
  const { port } = server.address() as { port: number };
  const options = { workerUrls: [`http://127.0.0.1:${port}`], tokenizerPath: scene.router.config.tokenizerPath };
  const router = await startTestRouter(t, { ...options, plugin: ['radix-tree:{"verify":false}'] });
  const body = '{"a":12345678901234567890, "text" : "a b" ,"x":{"text":"no"},"n":1e400}';
  await fetch(`${router.url}/generate`, { method: 'POST', body });
  assert.deepEqual(seen, [body.replace('"text" : "a b"', `"input_ids":[${encode('a b').join(',')}]`)]);
});

test('a field that is null counts as absent, at any place', async (t) => {
  const scene = await startWithTree(t);
  const sampling = { max_new_tokens: 6, ignore_eos: true };
  for (const body of [
    { text: prompt, input_ids: null, sampling_params: sampling },
    { input_ids: null, image_data: null, text: prompt, sampling_params: sampling },
  ]) {
    const { text, output_ids: ids } = await generate(scene, body);
    assert.deepEqual(scene.log.at(-1)!.inputIds, encode(prompt));
    assert.deepEqual((await scene.retrieve(prompt + text)).tokens, [...encode(prompt), ...ids]);
  }
});

/** An engine that says what it is told to, whatever it is asked. @returns its URL */
async function answering(t: TestContext, answer: (question: { input_ids: number[] }) => string): Promise<string> {
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (part: Buffer) => (body += part.toString()));
    request.on('end', () => response.end(answer(JSON.parse(body) as { input_ids: number[] })));
  }).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as { port: number }).port}`;
}

test('special tokens that are left out of the text are gone on from, before a stop and where nothing stopped it', async (t) => {
  const [toolCall, thinking] = [encode('<tool_call>'), encode('<think>')].map(([id]) => id!) as [number, number];
  for (const [type, sampled, more, expected] of [
    ['abort', [...encode('Go'), toolCall], ' on', [...encode('Go'), toolCall, ...encode(' on')]],
    [
      'stop',
      [...encode('Go'), thinking, endOfTurn],
      '<|im_end|> on',
      [...encode('Go'), thinking, endOfTurn, ...encode(' on')],
    ],
  ] as const) {
    const asked: number[][] = [];
    const engine = await answering(t, ({ input_ids: ids }) => {
      asked.push(ids);
      const counts = { prompt_tokens: ids.length, completion_tokens: sampled.length };
      return JSON.stringify({ text: 'Go', output_ids: sampled, meta_info: { finish_reason: { type }, ...counts } });
    });
    const scene = await startWithTree(t, {}, { workerUrls: [engine] }, 'radix-tree:{"verify":false}');
    await generate(scene, { text: prompt });
    await generate(scene, { text: `${prompt}Go${more}` });
    assert.deepEqual(asked[1], [...encode(prompt), ...expected], type);
  }
});

test('an answer with fewer samples than were asked for is counted, by the metrics too', async (t) => {
  const options = { workerUrls: [await answering(t, () => '[]')] };
  const scene = await startWithTree(t, {}, options, 'radix-tree:{"verify":false}');
  assert.equal((await scene.post('/generate', { text: ['a', 'b'] })).text, '[]');
  await untilIdle(scene.router);
  const stats: Record<string, unknown> = await scene.stats();
  assert.equal(stats.uncaptured_answers, 1);
  assert.equal(stats.last_problem, '0 answers where 2 were asked for');
  const page = await (await fetch(`${scene.router.url}/metrics`)).text();
  assert.match(page, /^turnout_radix_tree_uncaptured_total 1$/m);
});

test('what was wrong with a response is in no answer for one tenant, because it may have text of another', async (t) => {
  const options = { workerUrls: [await answering(t, () => '[]')], apiKey: ['a'], adminApiKey: ['admin'] };
  const scene = await startWithTree(t, {}, options, 'radix-tree:{"verify":false}');
  const as = (key: string) => ({ authorization: `Bearer ${key}` });
  await scene.post('/generate', { text: ['a', 'b'] }, as('a'));
  await untilIdle(scene.router);
  const told = async (key: string): Promise<unknown[]> => {
    const response = await fetch(`${scene.router.url}/radix_tree/stats`, { headers: as(key) });
    const stats = (await response.json()) as Record<string, unknown>;
    return [stats.uncaptured_answers, stats.last_problem];
  };
  assert.deepEqual(await told('a'), [1, null]);
  assert.deepEqual(await told('admin'), [1, '0 answers where 2 were asked for']);
});

test('completions, by option: ids go out and are asked for', async (t) => {
  for (const kind of ['vllm', 'sglang'] as const) {
    const scene = await startWithTree(t, { kind }, {}, 'radix-tree:{"completions":true}');
    let text = prompt;
    for (const stream of [false, true]) {
      const { status } = await scene.post('/v1/completions', {
        model: 'sim',
        prompt: text,
        max_tokens: 8,
        logprobs: 1,
        stream,
      });
      assert.equal(status, 200);
      await untilIdle(scene.router);
      const { inputIds, outputIds } = scene.log.at(-1)!;
      const visible = outputIds.at(-1) === endOfTurn ? outputIds.slice(0, -1) : outputIds;
      text = `${decode(inputIds)}${decode(visible, false)}`;
      const got = await scene.retrieve(text, stream ? { model: 'sim' } : {});
      assert.deepEqual(got.tokens, [...inputIds, ...outputIds]);
      assert.ok(got.rollout_logp.slice(inputIds.length).every((logprob) => logprob < 0));
      text += '<|im_end|>\nmore ';
    }
  }
});

test('models and tenants know nothing of each other', async (t) => {
  const scene = await startWithTree(t, {}, { apiKey: ['a', 'b'] });
  const as = (key: string) => ({ authorization: `Bearer ${key}` });
  const ask = { text: prompt, sampling_params: { max_new_tokens: 12, ignore_eos: true }, return_logprob: true };
  const { text } = JSON.parse((await scene.post('/generate', ask, as('a'))).text) as Answer;
  const sampled = async (key: string, more: object = {}): Promise<number> => {
    const { text: json } = await scene.post('/retrieve_from_text', { text: prompt + text, ...more }, as(key));
    return (JSON.parse(json) as Retrieved).loss_mask.filter((bit) => bit === 1).length;
  };
  assert.ok((await sampled('a')) > 0);
  assert.equal(await sampled('b'), 0);
  assert.equal(await sampled('a', { model: 'other' }), 0);
  // Each prompt of a list may have an adapter of its own.
  for (const name of ['x', 'y']) {
    const body = JSON.stringify({ lora_name: name, lora_path: `/${name}` });
    await fetch(`${scene.engine.url}/load_lora_adapter`, { method: 'POST', body });
  }
  const both = { ...ask, text: [prompt, prompt], lora_path: ['x', 'y'] };
  const answers = JSON.parse((await scene.post('/generate', both, as('b'))).text) as Answer[];
  const known = async (model: string, { text: sampledText }: Answer): Promise<number[]> => {
    const asked = { text: prompt + sampledText, model };
    return (JSON.parse((await scene.post('/retrieve_from_text', asked, as('b'))).text) as Retrieved).tokens;
  };
  for (const [i, model] of ['x', '\ny'].entries()) {
    assert.deepEqual(await known(model, answers[i]!), [...encode(prompt), ...answers[i]!.output_ids]);
  }
  assert.equal((await scene.post('/retrieve_from_text', { text: 'a' })).status, 401);
});

test('an engine with another tokenizer is refused, with the text that differs', async (t) => {
  const scene = await startWithTree(t);
  const server = createServer((request, response) => {
    request.resume();
    request.on('end', () => response.end(JSON.stringify({ tokens: [1, 2], count: 2 })));
  }).listen(0);
  t.after(() => server.close());
  const { port } = server.address() as { port: number };
  const options = { workerUrls: [`http://127.0.0.1:${port}`], tokenizerPath: scene.router.config.tokenizerPath };
  const router = await startTestRouter(t, { ...options, plugin: ['radix-tree'] });
  const response = await fetch(`${router.url}/generate`, { method: 'POST', body: JSON.stringify({ text: 'a' }) });
  assert.equal(response.status, 500);
  assert.equal(response.headers.get('x-turnout-error'), 'tokenizer_mismatch');
  assert.match(await response.text(), /Hello, how are you\?.*differs from token 0/);
});

test('by the name that slime knows it by, with its metrics; without a tokenizer it does not start', async (t) => {
  const name = 'slime.router.middleware_hub.radix_tree_middleware.RadixTreeMiddleware';
  const scene = await startWithTree(t, {}, {}, name);
  await generate(scene, { text: prompt });
  await untilIdle(scene.router);
  const page = await (await fetch(scene.router.metricsUrl)).text();
  assert.match(page, /turnout_radix_tree_prompts_total 1\n/);
  assert.match(page, /turnout_radix_tree_nodes [1-9]/);
  await assert.rejects(startTestRouter(t, { plugin: ['radix-tree'] }), /--tokenizer-path/);
  await assert.rejects(startTestRouter(t, { plugin: ['radix-tree'], tokenizerPath: '/no/such' }), /no such file/);
});
