import { deepEqual, equal, match } from 'node:assert/strict';
import { mkdirSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { writeArchive } from '../harness/archive.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';
import { asked, startTinkerScene } from './scene.ts';

/** Checkpoints as SkyRL saves them: an archive each. */
function archives(t: TestContext) {
  const folder = join(temporaryFolder(t), 'model_1/sampler_weights');
  mkdirSync(folder, { recursive: true });
  const root = dirname(dirname(folder));
  return {
    folder,
    option: { tinkerWeights: `${root}/{model_id}/sampler_weights/{checkpoint}` },
    save: (name: string, files: Readonly<Record<string, string>> = { 'adapter_config.json': '{}' }): void =>
      writeArchive(join(folder, `${name}.tar.gz`), files),
    unpacked: (): string[] => readdirSync(folder).filter((name) => name.includes('.unpacked-')),
  };
}

const weights = 'tinker://model_1/sampler_weights';

test('archives are unpacked once for many samplers, and removed when no sampling session has them any more', async (t) => {
  const { option, save, unpacked } = archives(t);
  save('step_1');
  save('step_2');
  const { client, engines, log } = await startTinkerScene(t, ['vllm', 'sglang'], {
    ...option,
    policy: 'round_robin',
    logLevel: 'debug',
  });
  const { session_id: session } = await client.get('/create_session', {});
  const open = async (path: string): Promise<string> => {
    const body = { session_id: session, sampling_session_seq_id: 0, model_path: path };
    return String((await client.get('/create_sampling_session', body))['sampling_session_id']);
  };
  const samplers = await Promise.all(Array.from({ length: 8 }, () => open(`${weights}/step_1`)));
  samplers.push(await open(`${weights}/step_2`));
  await Promise.all(samplers.map((sampler, seq) => client.sample(asked(sampler, seq))));
  equal(log.of('an archive of weights was unpacked').length, 2);
  equal(unpacked().length, 2);
  const adapters = engines.map(({ core }) => [...core.modelNames.keys()].filter((name) => name !== 'sim'));
  for (const names of adapters) equal(names.filter((name) => name.includes('step_1')).length, 1);

  await client.get(`/sessions/${String(session)}/finish`, {});
  await until('what was unpacked is removed', () => unpacked().length === 0);
  const again = await client.samplingSession({ model_path: `${weights}/step_1` });
  equal((await client.sample(asked(again, 0))).sequences.length, 1);
  equal(unpacked().length, 1);
});

test('a restarted router samples from what was unpacked before', async (t) => {
  const { option, save, unpacked } = archives(t);
  const dataDir = temporaryFolder(t);
  save('step_1');
  const first = await startTinkerScene(t, ['vllm'], { ...option, dataDir });
  const session = await first.client.samplingSession({ model_path: `${weights}/step_1` });
  await first.client.sample(asked(session, 0));
  const before = unpacked();
  await first.router.close();
  const second = await startTinkerScene(t, ['vllm'], { ...option, dataDir });
  equal((await second.client.sample(asked(session, 1))).sequences.length, 1);
  deepEqual(unpacked(), before);
  equal(second.log.of('an archive of weights was unpacked').length, 0);
});

test('an archive that was saved again is not what the sampling sessions of before sample from', async (t) => {
  const { folder, option, save, unpacked } = archives(t);
  save('live');
  const { client, engines } = await startTinkerScene(t, ['vllm', 'vllm'], { ...option, policy: 'round_robin' });
  const before = await client.samplingSession({ model_path: `${weights}/live` });
  await client.sample(asked(before, 0));
  save('live', { 'adapter_config.json': '{"r":2}' });
  utimesSync(join(folder, 'live.tar.gz'), 1, 1);
  for (const name of unpacked()) rmSync(join(folder, name), { recursive: true });
  const { category, error } = await client.sample(asked(before, 1));
  equal(category, 'user');
  match(error!, /live\.tar\.gz was saved again since the sampling session was created/);
  equal(engines[1]!.core.modelNames.size, 1);
});

test('a bad archive is an error of the sampling session, in words', async (t) => {
  const { folder, option, save, unpacked } = archives(t);
  save('outside', { 'adapter_config.json': '{}', '../../evil': 'x' });
  writeFileSync(join(folder, 'text.tar.gz'), 'not an archive');
  const { client } = await startTinkerScene(t, ['vllm'], option);
  const { session_id } = await client.get('/create_session', {});
  for (const [name, status, words] of [
    ['outside', 400, /outside\.tar\.gz can't be unpacked: the path of its entry "\.\.\/\.\.\/evil" leaves the folder/],
    ['text', 400, /text\.tar\.gz can't be unpacked: /],
    ['none', 404, /none does not exist, and neither does the archive .*none\.tar\.gz/],
  ] as const) {
    const { status: got, json } = await client.call('/create_sampling_session', {
      session_id,
      sampling_session_seq_id: 0,
      model_path: `${weights}/${name}`,
    });
    equal(got, status, name);
    match(String(json['detail']), words);
  }
  deepEqual(unpacked(), []);
});
