import { deepEqual, equal, match, notEqual, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request } from '../harness/client.ts';
import { until } from '../harness/within.ts';
import { type TinkerScene, TinkerClient, asked, startTinkerScene } from './scene.ts';

/** Nothing is sampled until `resume`. */
async function pausedScene(...args: Parameters<typeof startTinkerScene>): Promise<TinkerScene & { resume(): void }> {
  const scene = await startTinkerScene(...args);
  for (const { core } of scene.engines) await core.pause('keep');
  return { ...scene, resume: () => scene.engines.forEach(({ core }) => core.resume()) };
}

test('errors have a detail, a length, and a status that no SDK retries without end', async (t) => {
  const { client, router } = await startTinkerScene(t, ['vllm']);
  for (const [path, body, status, words] of [
    ['/asample', '{', 400, /not a JSON object/],
    ['/asample', asked('sampling_none', 0), 404, /no sampling session/],
    ['/asample', asked('a:b', 0), 400, /":"/],
    [
      '/asample',
      { base_model: 'other', prompt: { chunks: [{ tokens: [1] }] } },
      404,
      /No engine serves other. Served: sim\./,
    ],
    ['/retrieve_future', {}, 422, /request_id/],
    ['/retrieve_future', { request_id: 'turnout-1' }, 404, /no request/],
    ['/session_heartbeat', { session_id: 'session_none' }, 404, /no session/],
    ['/create_sampling_session', { session_id: 'session_none', base_model: 'sim' }, 404, /no session/],
    ['/session_heartbeat', { session_id: 'a'.repeat(262_144) }, 413, /takes at most 262144/],
    ['/forward_backward', {}, 404, /samples only/],
    ['/auth/token', {}, 404, /samples only/],
  ] as const) {
    const reply = await client.call(path, body);
    equal(reply.status, status, `${path}: ${reply.bytes.toString()}`);
    match(String(reply.json['detail']), words);
  }
  const raw = await connectClient(t, router.url);
  raw.write(request('POST', '/api/v1/asample', '{}', ['content-type: application/json']));
  const { status, headerLines } = await raw
    .answer()
    .then((answer) => ({ status: answer.status, headerLines: answer.headText }));
  ok(status >= 400 && /content-length: \d+/i.test(headerLines), headerLines);
});

test('a method that a path does not take is 405, with those that it takes', async (t) => {
  const { router } = await startTinkerScene(t, ['vllm']);
  const got = await fetch(`${router.url}/api/v1/asample`);
  deepEqual(
    [got.status, got.headers.get('allow'), await got.json()],
    [405, 'POST', { detail: 'This path takes POST.' }],
  );
});

test('a sampling session is of one source', async (t) => {
  const { client } = await startTinkerScene(t, ['vllm']);
  const { session_id } = await client.get('/create_session', {});
  for (const source of [{}, { base_model: 'sim', model_path: 'tinker://a/b' }]) {
    const reply = await client.call('/create_sampling_session', { session_id, sampling_session_seq_id: 0, ...source });
    deepEqual([reply.status, reply.json['detail']], [400, 'Give one of base_model and model_path.']);
  }
  const id = await client.samplingSession();
  ok(!id.includes(':'));
  deepEqual(await client.get(`/samplers/${id}`), { sampler_id: id, base_model: 'sim' });
  equal((await client.call('/samplers/none')).status, 404);
});

test('a session that is finished is gone, with its sampling sessions; to finish it again is no error', async (t) => {
  const { client } = await startTinkerScene(t, ['vllm']);
  const { session_id: id } = await client.get('/create_session', {});
  const { sampling_session_id: sampling } = await client.get('/create_sampling_session', {
    session_id: id,
    base_model: 'sim',
  });
  deepEqual(await client.get('/session_heartbeat', { session_id: id, type: 'session_heartbeat' }), {
    type: 'session_heartbeat',
  });
  for (let i = 0; i < 2; i++)
    await client.get(`/sessions/${String(id)}/finish`, { reason: { type: 'success' }, detail: '' });
  equal((await client.call('/session_heartbeat', { session_id: id })).status, 404);
  equal((await client.call('/asample', asked(String(sampling), 0))).status, 404);
});

test('a poll ends with 408 while there is no result; a result can be fetched again', async (t) => {
  const { client, resume } = await pausedScene(t, ['vllm'], { tinkerPollSecs: 0.05 });
  const { request_id } = await client.get('/asample', asked(await client.samplingSession(), 0));
  const early = await client.call('/retrieve_future', { request_id });
  deepEqual([early.status, early.json['queue_state']], [408, 'active']);
  resume();
  const first = await client.result(request_id);
  equal(first['status'], 200);
  deepEqual(await client.result(request_id), first);
});

test('ids that were never issued are 404, dropped ones and those of another process 410', async (t) => {
  const { client } = await startTinkerScene(t, ['vllm']);
  const { request_id } = await client.get('/asample', asked(await client.samplingSession(), 0));
  const statusOf = async (id: string): Promise<number> =>
    (await client.call('/retrieve_future', { request_id: id })).status;
  const [, epoch = '', , secret = ''] = String(request_id).split('-');
  equal(await statusOf(`turnout-${(parseInt(epoch, 36) - 1).toString(36)}-0-${secret}`), 410);
  equal(
    await statusOf(`turnout-${epoch}-0-${'0'.repeat(18)}`),
    410,
    'issued, with another secret: nobody can tell that from a dropped one',
  );
  const { json } = await client.call('/retrieve_future', { request_id: `turnout-${epoch}-0-${'0'.repeat(18)}` });
  match(String(json['detail']), /not kept any more.*exceed 256 MB.*Sample again/);
  equal(await statusOf(`turnout-${epoch}-1-${secret}`), 404);
  equal(
    await statusOf(`turnout-${(parseInt(epoch, 36) + 1).toString(36)}-0-${secret}`),
    410,
    'the clock may have been set back since an earlier process',
  );
  equal(await statusOf('sample_1'), 404);
});

test('a cancelled sample stops at its engine and says so', async (t) => {
  const { client, engines, router } = await pausedScene(t, ['vllm']);
  const { request_id } = await client.get('/asample', asked(await client.samplingSession(), 0));
  await until('the sample is at its engine', () => engines[0]!.stats().running + engines[0]!.stats().waiting > 0);
  equal((await client.call('/cancel_future', { request_id })).status, 204);
  deepEqual(await client.result(request_id), { status: 200, error: 'The sample was cancelled.', category: 'user' });
  await until('the engine has nothing to do', () => engines[0]!.stats().running + engines[0]!.stats().waiting === 0);
  equal(router.pipeline.inFlight.size, 0);
});

test('retrieve_futures: one poll for the results of a sampling session, in the order in which they came', async (t) => {
  const { client, resume } = await pausedScene(t, ['vllm'], { tinkerPollSecs: 40 });
  const session = await client.samplingSession();
  const clone = 123_456_789_000_000_004n;
  const text = (seqId: bigint): string => JSON.stringify(asked(session, 0)).replace('"seq_id":0', `"seq_id":${seqId}`);
  const poll = (cursor: unknown, cloned = 0, timeout?: number) =>
    client.get('/retrieve_futures', {
      target: { type: 'sampling_session', sampling_session_id: session, cloned_sampler_id: cloned },
      prev_cursor: cursor,
      ...(timeout === undefined ? {} : { timeout }),
    });
  deepEqual(await poll(0, 0, 0), { completions: [], cursor: 0 });
  const { request_id: own } = await client.get('/asample', text(3n));
  const { request_id: cloned } = await client.get('/asample', text(clone));
  const waiting = poll(0);
  resume();
  const first = await waiting;
  deepEqual(first['completions'], [{ state: 'finished', request_id: own }]);
  ok(Number.isSafeInteger(first['cursor']));
  deepEqual(await poll(first['cursor'], 0, 0), { completions: [], cursor: first['cursor'] });
  // Of a router before this one, whose clock was ahead.
  deepEqual(await poll(Number(first['cursor']) + 1e9, 0, 0), first);
  deepEqual((await poll(0, 123_456_789))['completions'], [{ state: 'finished', request_id: cloned }]);
});

test('retrieve_futures: a poll gets the result of a sample that began after it', async (t) => {
  const { client, engines } = await pausedScene(t, ['vllm'], { tinkerPollSecs: 40 });
  const session = await client.samplingSession();
  await client.get('/asample', asked(session, 0));
  const waiting = client.get('/retrieve_futures', { target: { sampling_session_id: session }, prev_cursor: 0 });
  await until('the poll waits', () => engines[0]!.stats().running + engines[0]!.stats().waiting > 0);
  const { request_id } = await client.get('/asample', asked(session, 1));
  equal((await client.call('/cancel_future', { request_id })).status, 204);
  let isOver = false;
  void waiting.then(() => (isOver = true));
  await until('the poll is over', () => isOver);
  deepEqual((await waiting)['completions'], [{ state: 'failed', request_id }]);
});

test('a full queue is 429, also where it is the limit of open samples', async (t) => {
  const { client, resume } = await pausedScene(t, ['vllm'], {
    maxConcurrentRequests: 1,
    queueSize: 1,
    tinkerMaxSamples: 3,
  });
  const session = await client.samplingSession();
  const ids = [];
  for (let i = 0; i < 2; i++) ids.push((await client.get('/asample', asked(session, i)))['request_id']);
  const refused = await client.call('/asample', asked(session, 2));
  deepEqual([refused.status, refused.json['detail']], [429, 'The queue is full (--queue-size): try again.']);
  resume();
  for (const id of ids) equal((await client.result(id))['status'], 200);
  const { client: small } = await pausedScene(t, ['vllm'], { tinkerMaxSamples: 1 });
  const other = await small.samplingSession();
  const { request_id } = await small.get('/asample', asked(other, 0));
  await small.call('/cancel_future', { request_id });
  await small.get('/asample', asked(other, 1));
  const full = await small.call('/asample', asked(other, 2));
  deepEqual([full.status, full.json['detail']], [429, 'The queue is full (--tinker-max-samples): try again.']);
});

test('keys are those of the other endpoints, in X-API-Key; each client sees its own, and engines see none', async (t) => {
  const { router, engines } = await startTinkerScene(t, ['vllm'], { apiKey: ['tml-one', 'tml-two'] });
  equal((await new TinkerClient(router.url).call('/create_session', {})).status, 401);
  const [one, two] = ['tml-one', 'tml-two'].map((key) => new TinkerClient(router.url, { 'x-api-key': key }));
  const session = await one!.samplingSession();
  const { request_id } = await one!.get('/asample', asked(session, 0));
  equal((await two!.call('/asample', asked(session, 0))).status, 404);
  equal((await two!.call('/retrieve_future', { request_id })).status, 404);
  equal((await one!.result(request_id))['status'], 200);
  equal(engines[0]!.stats().requests, 1);
});

test('a prompt of megabytes is taken, and read on another thread', async (t) => {
  const { client, engines } = await startTinkerScene(
    t,
    ['sglang'],
    {},
    { maxModelTokens: 2_000_000, kvTokens: 4_000_000 },
  );
  const session = await client.samplingSession();
  const tokens = Array.from({ length: 400_000 }, (_, i) => 1000 + (i % 5000));
  const prompt = { chunks: [{ type: 'encoded_text', tokens }] };
  const { sequences, prompt_logprobs: logprobs } = await client.sample(
    asked(session, 0, { prompt, prompt_logprobs: true }),
  );
  ok(sequences[0]!.tokens.length > 0);
  equal(logprobs!.length, tokens.length);
  equal(logprobs![0], null);
  equal(engines[0]!.stats().promptTokens, tokens.length);
  const filler = 'x'.repeat(70_000_000);
  equal((await client.call('/asample', `{"filler":"${filler}"}`)).status, 413);
});

test('nothing of it is there without --tinker', async (t) => {
  const { client, engines } = await startTinkerScene(t, ['sglang'], { tinker: false });
  const reply = await client.call('/create_session', {});
  notEqual(reply.status, 200);
  equal(engines[0]!.stats().requests, 0);
});
