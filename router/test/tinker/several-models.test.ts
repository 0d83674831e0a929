import { deepEqual, equal, match } from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { startTestRouter } from '../harness/router.ts';
import type { SwapStatus } from '../harness/swap-scene.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { TinkerClient, type TinkerScene, asked, startTinkerScene } from './scene.ts';
import { startTrainerStub } from './trainer-stub.ts';

const models = ['alpha', 'beta'];
const kindsOfEngines = [
  ['sglang', 'sglang'],
  ['vllm', 'vllm'],
  ['sglang', 'vllm'],
  ['vllm', 'sglang'],
] as const;

/** @returns how many samples each engine got */
async function hitsOf({ client, engines }: TinkerScene, source: object): Promise<number[]> {
  const session = await client.samplingSession(source);
  for (let i = 0; i < 4; i++) await client.sample(asked(session, i));
  return engines.map((engine) => engine.stats().requests);
}

/** @returns the option for a checkpoint `tinker://run/a`, whose config names this base model; null: none */
function adapterOf(t: TestContext, base: string | null): { readonly tinkerWeights: string } {
  const folder = temporaryFolder(t);
  mkdirSync(join(folder, 'run', 'a'), { recursive: true });
  const config = base === null ? {} : { base_model_name_or_path: base };
  writeFileSync(join(folder, 'run', 'a', 'adapter_config.json'), JSON.stringify(config));
  return { tinkerWeights: join(folder, '{model_id}/{checkpoint}') };
}

for (const kinds of kindsOfEngines) {
  test(`${kinds.join(' and ')}: samples go to workers that serve their model`, async (t) => {
    const scene = await startTinkerScene(t, kinds, { policy: 'round_robin' }, { models });
    deepEqual(await hitsOf(scene, { base_model: 'beta' }), [0, 4]);
  });

  test(`${kinds.join(' and ')}: samples from an adapter go to workers that serve its base model`, async (t) => {
    const options = { policy: 'round_robin', ...adapterOf(t, 'beta') };
    const scene = await startTinkerScene(t, kinds, options, { models });
    deepEqual(await hitsOf(scene, { model_path: 'tinker://run/a' }), [0, 4]);
  });
}

for (const base of ['gamma', null]) {
  test(`of several models none is taken for the base model of an adapter that names ${base ?? 'none'}`, async (t) => {
    const { client, engines } = await startTinkerScene(t, ['sglang', 'vllm'], adapterOf(t, base), { models });
    const { session_id } = await client.get('/create_session', {});
    const asks = { session_id, sampling_session_seq_id: 0, model_path: 'tinker://run/a' };
    const { status, json } = await client.call('/create_sampling_session', asks);
    equal(status, 400);
    match(String(json['detail']), base === null ? /does not name/ : /no engine serves gamma/);
    match(String(json['detail']), /alpha, beta.*base_model_name_or_path.*--served-model-name/);
    deepEqual(
      engines.map((engine) => engine.stats().requests),
      [0, 0],
    );
  });
}

test('the only model that is served is the base model of an adapter, whatever its config names', async (t) => {
  const scene = await startTinkerScene(t, ['vllm', 'sglang'], adapterOf(t, '/models/elsewhere'));
  await hitsOf(scene, { model_path: 'tinker://run/a' });
});

test('of several models the trainer names the base model of an adapter whose config does not', async (t) => {
  const folder = temporaryFolder(t);
  const trainer = await startTrainerStub(t, folder);
  const options = {
    policy: 'round_robin',
    tinkerTrainer: trainer.url,
    tinkerWeights: join(folder, '{model_id}/{checkpoint}'),
  };
  const { client, engines } = await startTinkerScene(t, ['sglang', 'sglang'], options, { models: ['beta', 'sim'] });
  const sampler = trainer.createSampler(trainer.save('step_1'));
  for (let i = 0; i < 4; i++) await client.sample(asked(sampler, i));
  deepEqual(
    engines.map((engine) => engine.stats().requests),
    [0, 4],
  );
});

for (const [what, sets, isTaken] of [
  ['of several deployments', [['alpha'], ['beta']], false],
  ['of one deployment and of none', [['alpha']], false],
  ['of one deployment', [['alpha', 'beta']], true],
] as const) {
  test(`full weights are ${isTaken ? '' : 'not '}taken where the workers are ${what}`, async (t) => {
    const folder = temporaryFolder(t);
    mkdirSync(join(folder, 'run/full'), { recursive: true });
    writeFileSync(join(folder, 'run/full/model.safetensors'), '');
    const engines = await Promise.all(
      models.map((model) => startSimEngine({ kind: 'sglang', timeScale: 0, model, modelPath: model })),
    );
    for (const engine of engines) t.after(() => engine.close());
    const urlOf = (model: string): string => engines[models.indexOf(model)]!.url;
    const router = await startTestRouter(t, {
      tinker: true,
      tinkerWeights: `${folder}/{model_id}/{checkpoint}`,
      workerUrls: models.map(urlOf),
      deployments: sets.map((workers, i) => ({
        deployment: `accounts/acct/deployments/${i}`,
        transition: 'async',
        snapshots: '/snapshots/{identity}',
        'base-identity': 'base',
        workers: workers.map(urlOf),
      })),
    });
    const client = new TinkerClient(router.url);
    const { session_id } = await client.get('/create_session', {});
    const asks = { session_id, sampling_session_seq_id: 0, model_path: 'tinker://run/full' };
    const { status, json } = await client.call('/create_sampling_session', asks);
    if (!isTaken) match(String(json['detail']), /full weights.*several deployments.*POST \/swap/);
    const { deployments } = (await (await fetch(`${router.url}/swap`)).json()) as { deployments: SwapStatus[] };
    deepEqual(
      [status, ...deployments.map(({ swaps }) => swaps.length)],
      isTaken ? [200, 1] : [400, ...sets.map(() => 0)],
    );
  });
}
