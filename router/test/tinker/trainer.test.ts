import { deepEqual, equal, match, ok, rejects } from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { zstdCompressSync } from 'node:zlib';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { deadUrl } from '../harness/engine.ts';
import type { RouterOptions } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until, within } from '../harness/within.ts';
import { type TinkerScene, PROMPT, TinkerClient, asked, startTinkerScene } from './scene.ts';
import { TrainerStub, startTrainerStub } from './trainer-stub.ts';

interface TrainerScene extends TinkerScene {
  readonly trainer: TrainerStub;
}

async function startWithTrainer(
  t: TestContext,
  kinds: readonly SimOptions['kind'][] = ['vllm'],
  options: RouterOptions = {},
): Promise<TrainerScene> {
  const folder = temporaryFolder(t);
  const trainer = await startTrainerStub(t, folder);
  const weights = { tinkerTrainer: trainer.url, tinkerWeights: join(folder, '{model_id}/{checkpoint}') };
  return { trainer, ...(await startTinkerScene(t, kinds, { ...weights, ...options })) };
}

const greedy = { num_samples: 1, sampling_params: { max_tokens: 8, temperature: 0, stop: [] } };

test('what is not sampling passes to the trainer and back, byte for byte', async (t) => {
  const { client, trainer } = await startWithTrainer(t);
  const sent = zstdCompressSync(Buffer.concat([Buffer.from('\x0a\x07model_1'), randomBytes(300_000)]));
  const returned = randomBytes(2_000_000);
  trainer.onRequest = (_, response) => {
    response.writeHead(200, {
      'content-type': 'application/x-protobuf',
      'x-of-trainer': 'yes',
      'content-encoding': 'odd',
    });
    response.end(returned);
    return true;
  };
  const headers = {
    'content-type': 'application/x-protobuf',
    'content-encoding': 'zstd',
    accept: 'application/x-protobuf, application/json',
    'x-api-key': 'tml-mine',
    'x-idempotency-key': 'one',
  };
  const url = `${client.url}/api/v1/forward_backward?a=%2Fb%20c&d`;
  const response = await fetch(url, { method: 'POST', headers, body: sent });
  equal(response.status, 200);
  equal(response.headers.get('x-of-trainer'), 'yes');
  equal(response.headers.get('content-type'), 'application/x-protobuf');
  equal(response.headers.get('content-encoding'), 'odd');
  ok(returned.equals(Buffer.from(await response.arrayBuffer())));
  const [got] = trainer.requests;
  equal(got!.target, '/api/v1/forward_backward?a=%2Fb%20c&d');
  ok(sent.equals(got!.body));
  for (const [name, value] of Object.entries(headers)) equal(got!.headers[name], value);
});

test('a path of the trainer goes before that of the request, and a client that leaves ends its request', async (t) => {
  const trainer = await startTrainerStub(t, temporaryFolder(t));
  const { client } = await startTinkerScene(t, ['vllm'], { tinkerTrainer: `${trainer.url}/prefix/` });
  const left = Promise.withResolvers<void>();
  const came = Promise.withResolvers<void>();
  trainer.onRequest = (_, response) => {
    response.on('close', () => left.resolve());
    came.resolve();
    return true;
  };
  const leaving = new AbortController();
  const asking = fetch(`${client.url}/api/v1/optim_step`, { method: 'POST', body: '{}', signal: leaving.signal });
  await within(came.promise, 'the trainer gets the request');
  equal(trainer.requests[0]!.target, '/prefix/api/v1/optim_step');
  leaving.abort();
  await rejects(asking);
  await within(left.promise, 'the request to the trainer ends');
});

test('any method and status passes, and each error has a length', async (t) => {
  const { client, trainer } = await startWithTrainer(t);
  trainer.onRequest = (request, response) => {
    if (request.method === 'DELETE') response.writeHead(204).end();
    else if (request.target.endsWith('/archive')) response.writeHead(302, { location: 'http://elsewhere/file' }).end();
    // Without a length of its own.
    else response.writeHead(400, { 'content-type': 'application/json' }).write('{"detail":');
    if (!response.writableEnded) response.end('"no"}');
    return true;
  };
  const at = `${client.url}/api/v1/training_runs/model_1/checkpoints/sampler_weights/last`;
  equal((await fetch(at, { method: 'DELETE' })).status, 204);
  const archive = await fetch(`${at}/archive`, { redirect: 'manual' });
  equal(archive.status, 302);
  equal(archive.headers.get('location'), 'http://elsewhere/file');
  const refused = await fetch(`${at}/ttl`, { method: 'PUT', body: '{}' });
  equal(refused.status, 400);
  equal(refused.headers.get('content-length'), '15');
  equal(await refused.text(), '{"detail":"no"}');
  deepEqual(
    trainer.requests.map(({ method, target }) => `${method} ${target.split('/').at(-1)}`),
    ['DELETE last', 'GET archive', 'PUT ttl'],
  );
});

test('futures of the router and of the trainer are kept apart', async (t) => {
  const { client, trainer } = await startWithTrainer(t);
  const session = await client.samplingSession();
  const own = await client.get('/asample', asked(session, 0));
  const theirs = await client.get('/optim_step', { model_id: 'model_1' });
  equal((await client.result(own['request_id']))['type'], 'sample');
  equal((await client.result(theirs['request_id']))['type'], 'optim_step');
  equal((await client.call('/retrieve_future', { request_id: 'future_none' })).status, 404);
  equal(trainer.of('/retrieve_future').length, 2);
  const cancelled = await client.get('/asample', asked(session, 1));
  equal((await client.call('/cancel_future', { request_id: cancelled['request_id'] })).status, 204);
  equal(trainer.of('/cancel_future').length, 0);
  equal((await client.call('/cancel_future', { request_id: 'future_1' })).status, 404);
  equal(trainer.of('/cancel_future').length, 1);
});

test('the trainer names sessions; heartbeats and ends reach it', async (t) => {
  const { client, trainer } = await startWithTrainer(t);
  const created = await client.get('/create_session', { tags: [], sdk_version: '0.38.0', type: 'create_session' });
  match(String(created['session_id']), /^trainer_/);
  equal(created['info_message'], 'of the trainer');
  const { session_id } = created;
  equal((await client.call('/session_heartbeat', { session_id })).status, 200);
  equal(trainer.of('/session_heartbeat').length, 1);
  // As after a restart of the router.
  equal((await client.call('/session_heartbeat', { session_id: 'trainer_before' })).status, 200);
  await client.get('/create_sampling_session', { session_id: 'trainer_before', base_model: 'sim' });
  const opened = await client.get('/create_sampling_session', { session_id, base_model: 'sim' });
  const sample = asked(String(opened['sampling_session_id']), 0);
  equal((await client.sample(sample)).sequences.length, 1);
  equal((await client.call(`/sessions/${String(session_id)}/finish`, { reason: { type: 'success' } })).status, 200);
  equal(trainer.of(`/sessions/${String(session_id)}/finish`).length, 1);
  equal((await client.call('/asample', sample)).status, 404, 'the sampling session ends with its session');
});

test('sessions and sampling sessions stay those of the first key, whatever the trainer says', async (t) => {
  const { trainer, router } = await startWithTrainer(t, ['vllm'], { apiKey: ['tml-one', 'tml-two'] });
  const [one, two] = ['tml-one', 'tml-two'].map((key) => new TinkerClient(router.url, { 'x-api-key': key })) as [
    TinkerClient,
    TinkerClient,
  ];
  const { session_id } = await one.get('/create_session', {});
  const opened = await one.get('/create_sampling_session', { session_id, base_model: 'sim' });
  const own = String(opened['sampling_session_id']);
  const learned = trainer.createSampler(trainer.save('a'));
  await one.sample(asked(learned, 0, greedy));
  const { length } = trainer.requests;
  for (const [path, body, status] of [
    ['/session_heartbeat', { session_id }, 404],
    [`/sessions/${String(session_id)}/finish`, { reason: { type: 'success' } }, 200],
    ['/create_sampling_session', { session_id, base_model: 'sim' }, 404],
    ['/asample', asked(own, 0), 404],
    ['/asample', asked(learned, 0, greedy), 404],
    ['/create_model', { session_id, base_model: 'sim' }, 404],
    [`/sessions/${String(session_id)}/trace_export`, undefined, 404],
    [`/samplers/${own}`, undefined, 404],
    [`/samplers/${learned}`, undefined, 404],
    [`/samplers/${own}`, {}, 404],
    [`/samplers/${learned}/details`, undefined, 404],
    ['/join_sampling_session', { sampling_session_id: own }, 404],
    ['/join_sampling_session', { sampling_session_id: learned }, 404],
  ] as const) {
    equal((await two.call(path, body)).status, status, path);
  }
  equal(trainer.requests.length, length, 'the trainer is not asked about what belongs to another key');
  // A trainer that gives the same id to both.
  trainer.onRequest = (_, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ session_id }));
    return true;
  };
  const refused = await two.call('/create_session', {});
  equal(refused.status, 403);
  match(String(refused.json['detail']), /belongs to another API key/);
  equal((await one.call('/session_heartbeat', { session_id })).status, 200);
  equal((await one.call('/join_sampling_session', { sampling_session_id: learned })).status, 200);
  equal((await one.sample(asked(own, 1, greedy))).sequences.length, 1);
  equal((await one.sample(asked(learned, 1, greedy))).sequences.length, 1);
});

test('a sampling session of the trainer has any name that a path and a header can have', async (t) => {
  const { client, trainer } = await startWithTrainer(t);
  trainer.onRequest = ({ target }, response) => {
    if (!target.includes('/samplers/')) return undefined;
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"base_model":"sim"}');
    return true;
  };
  for (const name of ['日本', 'ü', 'a b', '__proto__'])
    equal((await client.sample(asked(name, 0, greedy))).sequences.length, 1, name);
  const { length } = trainer.requests;
  for (const name of ['\ud800', 'a\nb', 'a\0']) {
    const { status, json } = await client.call('/asample', asked(name, 0, greedy));
    equal(status, 400);
    match(String(json['detail']), /must not contain control characters or unpaired surrogates/);
  }
  equal(trainer.requests.length, length);
});

test('a session is that of its first key, however its id is spelled in the path', async (t) => {
  const { trainer, router } = await startWithTrainer(t, ['vllm'], { apiKey: ['tml-one', 'tml-two'] });
  const [one, two] = ['tml-one', 'tml-two'].map((key) => new TinkerClient(router.url, { 'x-api-key': key }));
  trainer.onRequest = (_, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"session_id":"run:1 é"}');
    return true;
  };
  equal((await one!.get('/create_session', {}))['session_id'], 'run:1 é');
  const { length } = trainer.requests;
  for (const id of ['run:1%20%C3%A9', 'run%3A1%20%c3%a9', '%72un%3a1%20%C3%A9']) {
    for (const path of [`/sessions/${id}/trace_export`, `/sessions%2F${id}%2Ftrace_export`])
      equal((await two!.call(path)).status, 404, path);
  }
  equal(trainer.requests.length, length);
  equal((await one!.call('/sessions/run%3A1%20%c3%a9/trace_export')).status, 200);
});

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: a sampling session that the trainer created samples from its weights, not from the base's`, async (t) => {
    const { client, trainer, engines } = await startWithTrainer(t, [kind, kind]);
    const base = await client.sample(asked(await client.samplingSession(), 0, greedy));
    const tokensOf = async (session: string): Promise<readonly number[]> =>
      (await client.sample(asked(session, 0, greedy))).sequences[0]!.tokens;
    const [first, second] = [trainer.createSampler(trainer.save('a')), trainer.createSampler(trainer.save('b'))];
    const [ofFirst, ofSecond] = [await tokensOf(first), await tokensOf(second)];
    const all = [base.sequences[0]!.tokens, ofFirst, ofSecond];
    equal(new Set(all.map((tokens) => tokens.join())).size, 3);
    deepEqual(await tokensOf(first), ofFirst);
    equal(trainer.of(`/samplers/${first}`).length, 1, 'it is learned once');
    deepEqual(await client.get(`/samplers/${second}`), {
      sampler_id: second,
      base_model: 'sim',
      model_path: 'tinker://model_1/sampler_weights/b',
    });
    // The tokens are those of the adapter, as the engine itself samples with it.
    const served = engines.find(({ core }) => [...core.modelNames.keys()].some((name) => name.includes('/a@')))!;
    const adapter = [...served.core.modelNames.keys()].find((name) => name.includes('/a@'))!;
    const body =
      kind === 'vllm'
        ? { model: adapter, prompt: PROMPT, max_tokens: 8, temperature: 0, ignore_eos: true, return_token_ids: true }
        : {
            input_ids: PROMPT,
            sampling_params: { max_new_tokens: 8, temperature: 0, ignore_eos: true },
            lora_path: adapter,
          };
    const path = kind === 'vllm' ? '/v1/completions' : '/generate';
    const direct = await fetch(served.url + path, { method: 'POST', body: JSON.stringify(body) });
    const said = (await direct.json()) as { output_ids?: number[]; choices?: [{ token_ids: number[] }] };
    deepEqual(said.output_ids ?? said.choices![0].token_ids, ofFirst);
  });
}

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: an adapter is unloaded with the last sampling session that has it`, async (t) => {
    const folder = temporaryFolder(t);
    const model_path = new TrainerStub(folder).save('a');
    const { client, engines } = await startTinkerScene(t, [kind], {
      tinkerWeights: join(folder, '{model_id}/{checkpoint}'),
    });
    const session = async (): Promise<[string, string]> => {
      const { session_id } = await client.get('/create_session', {});
      const opened = await client.get('/create_sampling_session', { session_id, model_path });
      return [String(session_id), String(opened['sampling_session_id'])];
    };
    const [[first, one], [second, two]] = [await session(), await session()];
    for (const id of [one, two]) await client.sample(asked(id, 0, greedy));
    const loaded = (): number => engines[0]!.core.modelNames.size - 1;
    equal(loaded(), 1);
    await client.get(`/sessions/${first}/finish`, {});
    await client.sample(asked(two, 1, greedy));
    equal(loaded(), 1);
    await client.get(`/sessions/${second}/finish`, {});
    await until('the engine has no adapter', () => loaded() === 0);
    const [, again] = await session();
    equal((await client.sample(asked(again, 0, greedy))).sequences.length, 1);
    equal(loaded(), 1);
  });
}

test('what can not be sampled is refused in words: no such session, weights that engines do not see', async (t) => {
  const { client, trainer } = await startWithTrainer(t);
  const unknown = await client.call('/asample', asked('sampling_none', 0));
  equal(unknown.status, 404);
  match(String(unknown.json['detail']), /no sampling session sampling_none, and the trainer knows none/);
  equal((await client.call('/samplers/sampling_none')).status, 404);
  const away = trainer.createSampler('tinker://model_1/sampler_weights/not-saved');
  for (const reply of [await client.call('/asample', asked(away, 0)), await client.call(`/samplers/${away}`)]) {
    equal(reply.status, 404);
    match(String(reply.json['detail']), /not-saved does not exist/);
  }
});

test('a learned sampling session outlives a restart of the router', async (t) => {
  const dataDir = temporaryFolder(t);
  const { client, trainer, router, engines } = await startWithTrainer(t, ['vllm'], { dataDir });
  const sampler = trainer.createSampler(trainer.save('a'));
  const { sequences } = await client.sample(asked(sampler, 0, greedy));
  const { config } = router;
  await router.close();
  trainer.onRequest = (_, response) => {
    response.writeHead(500).end();
    return true;
  };
  const options = { dataDir, tinkerTrainer: config.tinkerTrainer, tinkerWeights: config.tinkerWeights };
  const again = await startTinkerScene(t, [], { ...options, workerUrls: engines.map(({ url }) => url) });
  deepEqual((await again.client.sample(asked(sampler, 0, greedy))).sequences, sequences);
});

test('capabilities and flags are those of the trainer, but for sampling', async (t) => {
  const { client } = await startWithTrainer(t);
  deepEqual(await client.get('/get_server_capabilities'), {
    supported_models: [
      { model_name: 'sim', trainable: true, sampleable: true },
      { model_name: 'larger', sampleable: false },
    ],
  });
  deepEqual(await client.get('/client/config', { sdk_version: '0.38.0' }), { proto_compress_fwdbwd: true });
});

test('parts of the hosted service alone are not forwarded', async (t) => {
  const { client, trainer } = await startWithTrainer(t);
  for (const path of ['/auth/token', '/billing/usage', '/audit']) equal((await client.call(path, {})).status, 404);
  deepEqual(trainer.requests, []);
});

test('without a trainer training is refused in words, as it is while the trainer is away', async (t) => {
  const { client } = await startTinkerScene(t, ['vllm']);
  const refused = await client.call('/forward_backward', {});
  equal(refused.status, 404);
  match(String(refused.json['detail']), /--tinker-trainer/);
  const gone = await deadUrl();
  const { client: other } = await startTinkerScene(t, ['vllm'], { tinkerTrainer: gone });
  for (const path of ['/create_session', '/optim_step', '/retrieve_future']) {
    const { status, json } = await other.call(path, { request_id: 'future_1' });
    equal(status, 503);
    match(String(json['detail']), new RegExp(`${gone}.*--tinker-trainer.*ECONNREFUSED`));
  }
  // Sampling needs no trainer.
  const sample = { ...greedy, base_model: 'sim', prompt: { chunks: [{ type: 'encoded_text', tokens: PROMPT }] } };
  equal((await other.sample(sample)).sequences.length, 1);
});
