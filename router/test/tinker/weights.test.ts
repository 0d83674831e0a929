import { deepEqual, equal, match, notDeepEqual } from 'node:assert/strict';
import { mkdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { startTestRouter } from '../harness/router.ts';
import { holdLoads, startSims } from '../harness/swap-scene.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';
import { TinkerClient, asked, startTinkerScene } from './scene.ts';

/** Checkpoints on a disk that the router and engines share. */
function checkpoints(t: TestContext) {
  const root = temporaryFolder(t);
  const save = (name: string, file = 'adapter_config.json'): void => {
    mkdirSync(join(root, 'model_1', name), { recursive: true });
    writeFileSync(join(root, 'model_1', name, file), '{}');
  };
  return { root, save, option: { tinkerWeights: `${root}/{model_id}/{checkpoint}` } };
}

const samplesOf = (tokens: { sequences: readonly { tokens: readonly number[] }[] }) =>
  tokens.sequences.map((sequence) => sequence.tokens);

for (const kinds of [
  ['vllm', 'vllm'],
  ['sglang', 'sglang'],
  ['vllm', 'sglang'],
] as const) {
  test(`${kinds.join(' and ')}: an adapter is loaded on a worker before its first sample with it, once`, async (t) => {
    const { option, save } = checkpoints(t);
    save('step_1');
    save('step_2');
    const { client, engines } = await startTinkerScene(t, kinds, { ...option, policy: 'round_robin' });
    const base = samplesOf(await client.sample(asked(await client.samplingSession(), 0)));
    const step1 = await client.samplingSession({ model_path: 'tinker://model_1/sampler_weights/step_1' });
    const step2 = await client.samplingSession({ model_path: 'tinker://model_1/step_2' });
    const all = await Promise.all(
      [step1, step1, step1, step1, step2].map((session, seq) =>
        client.sample(asked(session, seq, { sampling_params: { max_tokens: 8, temperature: 0 } })),
      ),
    );
    const [first, ...others] = all.map(samplesOf);
    const last = others.pop();
    notDeepEqual(first, base);
    for (const other of others) deepEqual(other, first, 'the same weights on each worker');
    notDeepEqual(last, first);
    for (const { core } of engines) {
      const adapters = [...core.modelNames.keys()].filter((name) => name !== 'sim');
      equal(adapters.filter((name) => name.includes('step_1')).length, 1);
    }
    const { base_model, model_path } = await client.get(`/samplers/${step1}`);
    deepEqual([base_model, model_path], ['sim', 'tinker://model_1/sampler_weights/step_1']);
    deepEqual((await client.get('/get_server_capabilities'))['supported_models'], [
      { model_name: 'sim', max_context_length: 32_768 },
    ]);
  });
}

test('a checkpoint that is saved again under its name is another adapter', async (t) => {
  const { option, save, root } = checkpoints(t);
  save('live');
  const { client, engines } = await startTinkerScene(t, ['vllm'], option);
  await client.sample(asked(await client.samplingSession({ model_path: 'tinker://model_1/live' }), 0));
  utimesSync(join(root, 'model_1/live/adapter_config.json'), 1, 1);
  await client.sample(asked(await client.samplingSession({ model_path: 'tinker://model_1/live' }), 0));
  equal(engines[0]!.core.modelNames.size, 3);
});

for (const saved of ['adapter_config.json', 'adapter_model.safetensors']) {
  test(`an engine that loads after a save (of ${saved} first) has no samples for the sampling session of before`, async (t) => {
    const { option, save, root } = checkpoints(t);
    const live = 'tinker://model_1/live';
    save('live', 'adapter_model.safetensors');
    save('live');
    const { client, engines } = await startTinkerScene(t, ['vllm', 'sglang'], { ...option, policy: 'round_robin' });
    const before = await client.samplingSession({ model_path: live });
    await client.sample(asked(before, 0));
    utimesSync(join(root, 'model_1/live', saved), 2_000_000_000, 2_000_000_000);
    const later = await Promise.all([1, 2].map((seq) => client.sample(asked(before, seq))));
    // The engine that has loaded it goes on.
    deepEqual(new Set(later.map(({ category }) => category)), new Set([undefined, 'user']));
    const { error } = later.find(({ category }) => category !== undefined)!;
    match(error!, /model_1\/live was saved again since the sampling session was created\. Create a sampling session/);
    const adapters = engines.map(({ core }) => core.modelNames.size - 1);
    deepEqual(adapters, [1, 0]);
    const after = await client.samplingSession({ model_path: live });
    for (const seq of [0, 1]) equal((await client.sample(asked(after, seq))).sequences.length, 1);
  });
}

test('what is saved while an engine loads it is unloaded, and not sampled from', async (t) => {
  const { option, save, root } = checkpoints(t);
  save('live');
  const engine = await startEngine(t);
  const paths: string[] = [];
  engine.onRequest = ({ target, connection }) => {
    paths.push(target);
    if (paths.length === 1) utimesSync(join(root, 'model_1/live/adapter_config.json'), 1, 1);
    connection.write(answer(200, 'Success'));
  };
  const router = await startTestRouter(t, { tinker: true, ...option, workerUrls: [engine.url] });
  const client = new TinkerClient(router.url);
  const session = await client.samplingSession({ model_path: 'tinker://model_1/live' });
  const { category, error } = await client.sample(asked(session, 0));
  equal(category, 'user');
  match(error!, /was saved again/);
  deepEqual(paths, ['/v1/load_lora_adapter', '/v1/unload_lora_adapter']);
});

test('full weights that are saved again in place are another snapshot', async (t) => {
  const { option, save, root } = checkpoints(t);
  save('full', 'model.safetensors');
  const swaps = { ...option, swapSnapshots: '/snapshots/{identity}' };
  const { client } = await startTinkerScene(t, ['sglang'], swaps);
  const before = await client.samplingSession({ model_path: 'tinker://model_1/full' });
  await client.sample(asked(before, 0));
  utimesSync(join(root, 'model_1/full/model.safetensors'), 1, 1);
  const after = await client.samplingSession({ model_path: 'tinker://model_1/full' });
  equal((await client.sample(asked(after, 0))).sequences.length, 1);
  equal((await client.sample(asked(before, 1))).category, 'user');
});

test('with pairs an adapter is loaded on both engines', async (t) => {
  const { option, save } = checkpoints(t);
  save('step_1');
  const engines = await startSims(t, ['sglang', 'sglang']);
  const [prefill, decode] = engines.map(({ url }) => url);
  const pairs = { pdDisaggregation: true, prefill: [prefill], decode: [decode], disableHealthCheck: false };
  const router = await startTestRouter(t, { tinker: true, ...option, ...pairs });
  await until('the router knows its engines', () => router.fleet.workers.every(({ models }) => models !== null));
  const client = new TinkerClient(router.url);
  const session = await client.samplingSession({ model_path: 'tinker://model_1/step_1' });
  const { error } = await client.sample(asked(session, 0));
  equal(error, undefined);
  for (const { core } of engines) equal(core.modelNames.size, 2);
});

test('an engine that was started anew gets the adapter again', async (t) => {
  for (const kind of ['vllm', 'sglang'] as const) {
    const { option, save } = checkpoints(t);
    save('step_1');
    const { client, engines } = await startTinkerScene(t, [kind], option);
    const session = await client.samplingSession({ model_path: 'tinker://model_1/step_1' });
    const before = samplesOf(await client.sample(asked(session, 0)));
    for (const name of engines[0]!.core.modelNames.keys()) if (name !== 'sim') engines[0]!.core.modelNames.delete(name);
    deepEqual(samplesOf(await client.sample(asked(session, 1))), before);
  }
});

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: full weights become those of the fleet, and samples wait for them`, async (t) => {
    const { option, save } = checkpoints(t);
    save('full_1', 'model.safetensors');
    save('full_2', 'model.safetensors');
    const swaps = { ...option, swapSnapshots: '/snapshots/{identity}' };
    const { client, engines } = await startTinkerScene(t, [kind, kind], swaps, { weightLoadMs: 100, timeScale: 1 });
    const greedy = { sampling_params: { max_tokens: 8, temperature: 0 } };
    const base = samplesOf(await client.sample(asked(await client.samplingSession(), 0, greedy)));
    const first = await client.samplingSession({ model_path: 'tinker://model_1/full_1' });
    const samples = await Promise.all(
      Array.from({ length: 8 }, (_, seq) => client.sample(asked(first, seq, greedy)).then(samplesOf)),
    );
    for (const { core } of engines) match(core.modelPath, /model_1\/full_1$/);
    notDeepEqual(samples[0], base);
    for (const sample of samples) deepEqual(sample, samples[0]);
    const second = await client.samplingSession({ model_path: 'tinker://model_1/full_2' });
    notDeepEqual(samplesOf(await client.sample(asked(second, 0, greedy))), samples[0]);
    const { error, category } = await client.sample(asked(first, 9, greedy));
    equal(category, 'user');
    match(error!, /other weights now \(model_1\.full_2-\w+, not model_1\.full_1-\w+\): create a sampling session/);
  });
}

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: a sample during which other full weights were loaded is no sample of the sampling session`, async (t) => {
    const { option, save } = checkpoints(t);
    save('full_1', 'model.safetensors');
    save('full_2', 'model.safetensors');
    const records: FinishedRecord[] = [];
    let isHeld = false;
    const { client, engines } = await startTinkerScene(
      t,
      [kind],
      { ...option, swapSnapshots: '/snapshots/{identity}' },
      {
        onFinished: (record) => void records.push(record),
        script: () => (isHeld ? { ids: [], holdAt: 4 } : undefined),
      },
    );
    const { core } = engines[0]!;
    const first = await client.samplingSession({ model_path: 'tinker://model_1/full_1' });
    await client.sample(asked(first, 0));
    isHeld = true;
    const long = asked(first, 1, { sampling_params: { max_tokens: 8, temperature: 0, stop: [] } });
    const { request_id: id } = await client.get('/asample', long);
    await until('the engine has sampled a part', () => core.scheduler.resting.length === 1);
    await client.samplingSession({ model_path: 'tinker://model_1/full_2' });
    await until('the other weights are loaded', () => core.modelPath.endsWith('/full_2'));
    core.release(() => true);
    const { error, sequences } = await client.result(id);
    equal(records.at(-1)!.weightVersions.length, 2, 'the engine has sampled with both');
    equal(sequences, undefined);
    match(String(error), /other weights now \(model_1\.full_2-\w+, not model_1\.full_1-\w+\)/);
  });
}

test('full weights whose swap is superseded in the queue are replaced, and samples do not wait for them', async (t) => {
  const { option, save } = checkpoints(t);
  const names = ['full_1', 'full_2', 'full_3'];
  for (const name of names) save(name, 'model.safetensors');
  const swaps = { ...option, swapSnapshots: '/snapshots/{identity}', tinkerRetrySecs: 600 };
  const { client, engines } = await startTinkerScene(t, ['sglang'], swaps);
  // The engine is known.
  await client.sample(asked(await client.samplingSession(), 0));
  const letLoad = holdLoads(t, ...engines);
  const sessions: string[] = [];
  for (const name of names) sessions.push(await client.samplingSession({ model_path: `tinker://model_1/${name}` }));
  const ids = [];
  for (const session of sessions) ids.push((await client.get('/asample', asked(session, 0)))['request_id']);
  letLoad();
  const [, second, third] = ids;
  const { error, category } = await client.result(second);
  equal(category, 'user');
  match(String(error), /other weights now \(.*, not model_1\.full_2-\w+\)/);
  equal(((await client.result(third))['sequences'] as unknown[]).length, 1);
});

test('what can not be loaded is an error of the sampling session, in words', async (t) => {
  const { option, save } = checkpoints(t);
  save('full', 'model.safetensors');
  save('step_1');
  const { client, engines } = await startTinkerScene(t, ['vllm'], option, { loraLoading: false });
  const { session_id } = await client.get('/create_session', {});
  for (const [path, status, words] of [
    ['tinker://model_1/none', 404, /does not exist/],
    ['tinker://model_1/full', 400, /no adapter_config.json.*full weights.*--swap-snapshots/],
    ['tinker://model_1/../model_1/step_1', 400, /must be tinker:/],
    ['tinker://../step_1', 400, /must be tinker:/],
    ['hf://model_1/step_1', 400, /must be tinker:/],
  ] as const) {
    const reply = await client.call('/create_sampling_session', {
      session_id,
      sampling_session_seq_id: 0,
      model_path: path,
    });
    equal(reply.status, status, path);
    match(String(reply.json['detail']), words);
  }
  const session = await client.samplingSession({ model_path: 'tinker://model_1/step_1' });
  const { error, category } = await client.sample(asked(session, 0));
  equal(category, 'server');
  match(error!, /did not load the adapter.*VLLM_ALLOW_RUNTIME_LORA_UPDATING/);
  equal(engines[0]!.stats().requests, 0);
  const { client: without } = await startTinkerScene(t, ['vllm']);
  const { session_id: other } = await without.get('/create_session', {});
  const reply = await without.call('/create_sampling_session', {
    session_id: other,
    sampling_session_seq_id: 0,
    model_path: 'tinker://a/b',
  });
  match(String(reply.json['detail']), /--tinker-weights/);
});
