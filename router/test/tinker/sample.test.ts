import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { startSims } from '../harness/swap-scene.ts';
import { until } from '../harness/within.ts';
import { PROMPT, TinkerClient, asked, startTinkerScene } from './scene.ts';

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: a client samples from the fleet: config, session, sampling session, asample, result`, async (t) => {
    const { client } = await startTinkerScene(t, [kind, kind]);
    deepEqual(await client.get('/client/config', { sdk_version: '0.38.0' }), {});
    deepEqual(await client.get('/get_server_capabilities'), {
      supported_models: [{ model_name: 'sim', max_context_length: 32_768 }],
    });
    const session = await client.samplingSession();
    const { request_id, sample_sequence_ids: ids } = await client.get(
      '/asample',
      asked(session, 0, { num_samples: 3 }),
    );
    equal(new Set(ids as string[]).size, 3);
    const { sequences } = (await client.result(request_id)) as unknown as Awaited<ReturnType<typeof client.sample>>;
    equal(sequences.length, 3);
    for (const { tokens, logprobs } of sequences) ok(tokens.length > 0 && tokens.length === logprobs.length);
    equal(new Set(sequences.map(({ tokens }) => tokens.join())).size, 3, 'samples of one seed differ');
    const again = await client.sample(asked(session, 1, { num_samples: 3 }));
    deepEqual(again.sequences, sequences, 'the same seed gives the same samples');
  });
}

test('pairs of SGLang, which serve no n above 1, sample several times, with a seed and without', async (t) => {
  const engines = await startSims(t, ['sglang', 'sglang']);
  const [prefill, decode] = engines.map(({ url }) => url);
  const pairs = { pdDisaggregation: true, prefill: [prefill], decode: [decode] };
  const router = await startTestRouter(t, { tinker: true, disableHealthCheck: false, ...pairs });
  await until('the router knows its engines', () => router.fleet.workers.every(({ models }) => models !== null));
  const client = new TinkerClient(router.url);
  const body = { base_model: 'sim', prompt: { chunks: [{ tokens: PROMPT }] }, num_samples: 4 };
  for (const seed of [7, null]) {
    const { sequences, error } = await client.sample({ ...body, sampling_params: { max_tokens: 2, seed } });
    deepEqual([error, sequences?.length], [undefined, 4]);
  }
  await untilIdle(router);
});

test('current SDKs get protobuf', async (t) => {
  const { client } = await startTinkerScene(t, ['vllm']);
  const session = await client.samplingSession();
  const { request_id } = await client.get('/asample', asked(session, 0));
  const { bytes, headers, status } = await client.call(
    '/retrieve_future',
    { request_id },
    { accept: 'application/x-protobuf, application/json' },
  );
  equal(status, 200);
  match(headers.get('content-type')!, /^application\/x-protobuf/);
  const json = await client.result(request_id);
  const { tokens, logprobs } = (json as unknown as Awaited<ReturnType<typeof client.sample>>).sequences[0]!;
  ok(bytes.includes(Buffer.from(Int32Array.from(tokens).buffer)));
  ok(bytes.includes(Buffer.from(Float32Array.from(logprobs).buffer)));
});

test('the prompt and the key reach the engine', async (t) => {
  const { client, log, engines } = await startTinkerScene(t, ['sglang', 'sglang', 'sglang']);
  const session = await client.samplingSession();
  for (let turn = 0; turn < 4; turn++) await client.sample(asked(session, 5, { num_samples: 2 }));
  const lines = log.lines.map(({ msg }) => msg).filter((msg) => msg.startsWith('[sticky-routing]'));
  deepEqual(
    lines,
    [0, 1, 2, 3].map((i) => `[sticky-routing] dispatch idx=${i} model=sim session_id=${session}:5`),
  );
  deepEqual(
    engines.map((engine) => engine.stats().requests).toSorted((a, b) => a - b),
    [0, 0, 4],
  );
  equal(
    engines.reduce((sum, engine) => sum + engine.stats().promptTokens, 0),
    8 * PROMPT.length,
  );
});
