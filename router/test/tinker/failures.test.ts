import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { type Engine, type EngineRequest, answer, startEngine } from '../harness/engine.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { PROMPT, TinkerClient, asked, startTinkerScene } from './scene.ts';

const done = (more: object = {}): string =>
  JSON.stringify({
    choices: [{ index: 0, token_ids: [5], finish_reason: 'stop', logprobs: { token_logprobs: [-0.5] }, ...more }],
  });

/** An engine whose answers are the test's, and a sampling session. */
async function startByteScene(t: TestContext, options: RouterOptions = {}) {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, { tinker: true, workerUrls: [engine.url], ...options });
  const client = new TinkerClient(router.url, { 'x-api-key': 'tml-dummy' });
  return { engine, router, client, session: await client.samplingSession() };
}

async function bodyOf(request: EngineRequest): Promise<Record<string, unknown>> {
  return JSON.parse((await request.payload()).toString()) as Record<string, unknown>;
}

/** Answers each next request with one of these. */
async function answerAll(engine: Engine, ...answers: readonly string[]): Promise<EngineRequest[]> {
  const requests: EngineRequest[] = [];
  for (const bytes of answers) {
    const request = await engine.next();
    await request.payload();
    request.connection.write(bytes);
    requests.push(request);
  }
  return requests;
}

test('the engine gets the key and the prompt, and no key of the client', async (t) => {
  const { engine, client, session } = await startByteScene(t, { apiKey: ['tml-dummy'] });
  const text = JSON.stringify(asked(session, 0)).replace('"seq_id":0', '"seq_id":999999999000000017');
  const { request_id: id } = await client.get('/asample', text);
  const request = await engine.next();
  equal(request.head.line, 'POST /v1/completions HTTP/1.1');
  equal(request.head.get('x-session-id'), `${session}:999999999000000017`);
  equal(request.head.get('x-api-key'), undefined);
  equal(request.head.get('authorization'), undefined);
  deepEqual((await bodyOf(request))['prompt'], PROMPT);
  request.answer(done());
  equal((await client.result(id))['status'], 200);
});

test('a request with the id of a sample in flight is no part of that sample', async (t) => {
  const { engine, router, client, session } = await startByteScene(t);
  const { request_id: future } = await client.get('/asample', JSON.stringify(asked(session, 0)));
  const sample = await engine.next();
  const id = sample.head.get('x-request-id')!;
  const other = fetch(`${router.url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-request-id': id },
    body: '{"prompt":"a"}',
  });
  const second = await engine.next();
  const rows = (await (await fetch(`${router.url}/requests`)).json()) as { requests: { session: string | null }[] };
  deepEqual(new Set(rows.requests.map((row) => row.session)), new Set([null, `${session}:0`]));
  second.answer(done());
  equal((await other).status, 200);
  sample.answer(done());
  equal((await client.result(future))['status'], 200);
});

test('without a sampling session there is no session header', async (t) => {
  const { engine, client } = await startByteScene(t);
  const sample = client.sample({
    base_model: 'sim',
    prompt: { chunks: [{ tokens: PROMPT }] },
    sampling_params: { max_tokens: 1 },
  });
  const request = await engine.next();
  equal(request.head.get('x-session-id'), undefined);
  equal((await bodyOf(request))['model'], 'sim');
  request.answer(done());
  await sample;
});

test('an aborted sample is sampled again, with its key', async (t) => {
  const { engine, client, session } = await startByteScene(t);
  const sample = client.sample(asked(session, 3));
  const aborted = answer(200, done({ finish_reason: 'abort' }));
  const requests = await answerAll(engine, aborted, aborted, answer(200, done()));
  deepEqual(
    requests.map(({ head }) => head.get('x-session-id')),
    Array.from(requests, () => `${session}:3`),
  );
  deepEqual(
    (await sample).sequences.map(({ tokens, stop_reason }) => [tokens, stop_reason]),
    [[[5], 'stop']],
  );
});

test('a sample that is always aborted fails as a server error, and is never called "length"', async (t) => {
  const { engine, client, session } = await startByteScene(t, { tinkerRetrySecs: 0 });
  engine.onRequest = (request) => request.answer(done({ finish_reason: 'abort' }));
  const { error, category } = await client.sample(asked(session, 0));
  deepEqual([error, category], ['the engine ended the sample with "abort"', 'server']);
});

test('what the engine refuses is the user’s fault, in the engine’s words, and not tried again', async (t) => {
  const { engine, client, session } = await startByteScene(t);
  engine.onRequest = (request) => request.connection.write(answer(400, '{"error":{"message":"too long","code":400}}'));
  deepEqual(await client.sample(asked(session, 0)), { status: 200, error: 'too long', category: 'user' });
  equal(engine.requests.length, 1);
});

test('requests to an engine that always responds with 500 end', async (t) => {
  const { engine, client, session } = await startByteScene(t, { retryMaxRetries: 0 });
  engine.onRequest = (request) => request.connection.write(answer(500, '{"error":{"message":"a bug"}}'));
  const { error, category } = await client.sample(asked(session, 0));
  deepEqual([category, error], ['server', 'a bug']);
  equal(engine.requests.length, 3);
});

/** An adapter, and how often an engine that answers its loads like this is asked for one by a sample. */
async function sampleWithAdapter(t: TestContext, answerTo: (load: number) => string) {
  const root = temporaryFolder(t);
  mkdirSync(join(root, 'run/a'), { recursive: true });
  writeFileSync(join(root, 'run/a/adapter_config.json'), '{}');
  const { engine, client } = await startByteScene(t, { tinkerWeights: `${root}/{model_id}/{checkpoint}` });
  let loads = 0;
  engine.onRequest = ({ target, connection }) =>
    connection.write(target.endsWith('load_lora_adapter') ? answerTo(++loads) : answer(200, done()));
  const sample = await client.sample(asked(await client.samplingSession({ model_path: 'tinker://run/a' }), 0));
  return { sample, loads };
}

const noAdapter = answer(404, '{"error":{"message":"No adapter found for /ckpt","type":"NotFoundError","code":404}}');

test('an adapter that an engine does not see yet is loaded at the next try', async (t) => {
  const { sample, loads } = await sampleWithAdapter(t, (load) => (load === 1 ? noAdapter : answer(200, 'Success')));
  deepEqual([sample.error, sample.sequences?.length, loads], [undefined, 1, 2]);
});

for (const [what, response, words] of [
  ['does not see', noAdapter, /: 404 .*No adapter found for \/ckpt/],
  ['cannot read', answer(500, '{"error":{"message":"a bad file","code":500}}'), /: 500 .*a bad file/],
  ['cannot load', answer(400, '{"success":false,"error_message":"a high rank"}'), /: 400 .*a high rank/],
  ['has no path to load', answer(404, '{"detail":"Not Found"}'), /it has no \/v1\/load_lora_adapter: .*--enable-lora/],
] as const) {
  test(`an adapter that an engine ${what} is a server error after three tries, in the engine’s words`, async (t) => {
    const { sample, loads } = await sampleWithAdapter(t, () => response);
    deepEqual([sample.category, loads], ['server', 3]);
    match(sample.error!, words);
  });
}

test('an answer that is cut off, an engine that says 503: the client sees neither', async (t) => {
  const { engine, client, session } = await startByteScene(t);
  const sample = client.sample(asked(session, 0));
  const cut = await engine.next();
  cut.connection.write('HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{"choices"');
  cut.connection.reset();
  await answerAll(engine, answer(503, ''), answer(429, ''), answer(200, done()));
  equal((await sample).sequences.length, 1);
});

test('an engine that is killed takes no sample with it', async (t) => {
  const { client, engines } = await startTinkerScene(t, ['vllm', 'vllm'], {}, { timeScale: 0.2 });
  const session = await client.samplingSession();
  const ids = [];
  for (let seq = 0; seq < 40; seq++)
    ids.push((await client.get('/asample', asked(session, seq, { num_samples: 2 })))['request_id']);
  await engines[0]!.kill();
  for (const id of ids) {
    const { status, sequences } = await client.result(id);
    equal(status, 200);
    equal((sequences as unknown[]).length, 2);
  }
  ok(engines[1]!.stats().requests > 0);
});

test('a model that no engine has is the user’s fault', async (t) => {
  const { client, engines } = await startTinkerScene(t, ['vllm']);
  const session = await client.samplingSession();
  engines[0]!.core.modelNames.delete('sim');
  const { error, category } = await client.sample(asked(session, 0));
  equal(category, 'user');
  match(String(error), /does not exist/);
});

/** An SGLang engine that passes no health check before `identify`, and a router that has open samples of an earlier process. */
async function startUnidentified(t: TestContext, options: RouterOptions = {}) {
  const dataDir = temporaryFolder(t);
  mkdirSync(join(dataDir, 'tinker-samples'));
  const ids = Array.from({ length: 5 }, (_, i) => `turnout-1-${i}-000000000000000000`);
  const sampling_params = { max_tokens: 1, seed: 7 };
  for (const id of ids) {
    const body = JSON.stringify({
      base_model: 'sim',
      num_samples: 3,
      prompt: { chunks: [{ tokens: PROMPT }] },
      sampling_params,
    });
    const line = JSON.stringify({ tenant: '', bytes: body.length });
    writeFileSync(join(dataDir, 'tinker-samples', id), `${line}\n${body}`);
  }
  const engine = await startEngine(t, { control: () => null });
  engine.onRequest = async (request) => {
    const { sampling_params: params } = await bodyOf(request);
    const meta_info = { finish_reason: { type: 'stop' }, output_token_logprobs: [[-1, 5, null]] };
    const results = JSON.stringify(Array.isArray(params) ? params.map(() => ({ meta_info })) : null);
    request.connection.write(answer(request.target === '/generate' ? 200 : 400, results));
  };
  const router = await startTestRouter(t, {
    tinker: true,
    workerUrls: [engine.url],
    disableHealthCheck: false,
    dataDir,
    ...options,
  });
  const identify = (): void => void (engine.control = () => answer(200, '{"model_path":"sim"}'));
  return { client: new TinkerClient(router.url), ids, engine, identify };
}

test('samples of a killed router wait until their engine is identified: SGLang gets its own path and a seed for each', async (t) => {
  const { client, ids, engine, identify } = await startUnidentified(t, {
    tinkerPollSecs: 0.05,
    healthCheckTimeoutSecs: 0.2,
  });
  for (const id of ids) equal((await client.call('/retrieve_future', { request_id: id })).status, 408);
  identify();
  for (const id of ids) equal(((await client.result(id))['sequences'] as unknown[]).length, 3);
  deepEqual(
    engine.requests.map(({ target }) => target),
    ids.map(() => '/generate'),
  );
  const { sampling_params: all } = await bodyOf(engine.requests[0]!);
  deepEqual(
    (all as { sampling_seed: number }[]).map(({ sampling_seed: seed }) => seed),
    [7, 8, 9],
  );
});

test('samples wait for a limited time for an engine that is not identified, and say why', async (t) => {
  const { client, ids, engine } = await startUnidentified(t, { tinkerRetrySecs: 0 });
  for (const id of ids) {
    const { error, category } = await client.result(id);
    match(String(error), /not known yet which kind of engine http:.* is: it has passed no health check/);
    equal(category, 'server');
  }
  equal(engine.requests.length, 0);
});

test('a batch that is too large for SGLang is refused, with the number of samples that is not', async (t) => {
  const { client } = await startTinkerScene(t, ['vllm', 'sglang']);
  const tokens = Array.from({ length: 20_000 }, () => 1001);
  const large = asked(await client.samplingSession(), 0, {
    num_samples: 4096,
    prompt: { chunks: [{ type: 'encoded_text', tokens }] },
  });
  const { status, json } = await client.call('/asample', large);
  equal(status, 400);
  match(String(json['detail']), /are more than 67108864. Ask for at most 670 samples in a call, or leave out the seed/);
});
