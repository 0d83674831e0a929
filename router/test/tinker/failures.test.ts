import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type Engine, type EngineRequest, answer, startEngine } from '../harness/engine.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
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

test('a sample that is aborted for ever fails as the server’s fault, and is never called "length"', async (t) => {
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

test('an engine that always answers 500 is not asked for ever', async (t) => {
  const { engine, client, session } = await startByteScene(t, { retryMaxRetries: 0 });
  engine.onRequest = (request) => request.connection.write(answer(500, '{"error":{"message":"a bug"}}'));
  const { error, category } = await client.sample(asked(session, 0));
  deepEqual([category, error], ['server', 'a bug']);
  equal(engine.requests.length, 3);
});

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
