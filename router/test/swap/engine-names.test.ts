import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { type TestContext, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { untilIdle } from '../harness/router.ts';
import { holdLoads } from '../harness/swap-scene.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';
import { type SwapScene, startSwapScene } from './swap-scene.ts';

type Kind = SimOptions['kind'];

interface Line {
  readonly tokens: readonly number[];
  readonly loss_mask: readonly number[];
  readonly versions: readonly { readonly version: string | null; readonly from: number; readonly to: number }[];
}

/** Engines whose answers are on record, and whose health is checked once in a minute. */
async function start(t: TestContext, kinds: readonly Kind[], sim: Partial<SimOptions> = {}): Promise<SwapScene> {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  return startSwapScene(
    t,
    kinds,
    { meanOutputTokens: 0, ...sim },
    {
      tokenizerPath,
      plugin: ['chat-sessions', 'radix-tree:{"completions":true}'],
      captureChat: true,
      pluginTimeoutMs: 60_000,
    },
  );
}

/** Every way in which tokens are sampled. */
const calls = (kind: Kind, i: number): readonly (readonly [path: string, body: object])[] => {
  const ids = [400 + i, 401, 402];
  const chat = { messages: [{ role: 'user', content: `Go on ${i}` }], max_tokens: 8 };
  const completion = { prompt: ids, max_tokens: 8, return_token_ids: true };
  const both = [
    ['/v1/chat/completions', chat],
    ['/v1/chat/completions', { ...chat, stream: true }],
    ['/v1/completions', completion],
    ['/v1/completions', { ...completion, stream: true, n: 2 }],
  ] as const;
  if (kind === 'vllm')
    return [...both, ['/inference/v1/generate', { token_ids: ids, sampling_params: { max_tokens: 8 } }]];
  const generate = { input_ids: ids, sampling_params: { max_new_tokens: 8 } };
  return [...both, ['/generate', generate], ['/generate', { ...generate, stream: true }]];
};

/** Sends all of them. Answers that are refused because weights are being checked are no failure. */
async function askAll({ post, router }: SwapScene, kind: Kind, round: number): Promise<void> {
  await Promise.all(
    calls(kind, round).map(async ([path, body], i) => {
      const response = await post(path, body, { 'x-session-id': `${round}-${i}` });
      await response.text();
    }),
  );
  await untilIdle(router);
}

/** The version that each sampled token has on record, by the ids of its generation. */
async function recorded({ router }: SwapScene): Promise<Map<string, (string | null)[]>> {
  await untilIdle(router);
  const jsonl = await (await fetch(`${router.url}/trajectories?format=jsonl`)).text();
  const found = new Map<string, (string | null)[]>();
  for (const json of jsonl.split('\n').filter((line) => line !== '')) {
    const { tokens, loss_mask: mask, versions } = JSON.parse(json) as Line;
    const first = mask.indexOf(1);
    const labels = versions.flatMap(({ version, from, to }) => Array<string | null>(to - from).fill(version));
    found.set(tokens.slice(first).join(), labels);
  }
  return found;
}

/** As engines know it. */
const truth = ({ weightVersions }: FinishedRecord): string[] =>
  weightVersions.flatMap(({ version, start, end }) =>
    Array<string>(end - start).fill(version === 'default' ? 'base' : version),
  );

/** Each token on record has the version that sampled it, or none. @returns how many have theirs */
async function checkRecord(scene: SwapScene, log: readonly FinishedRecord[] = scene.log): Promise<number> {
  const found = await recorded(scene);
  let count = 0;
  for (const record of log) {
    const labels = found.get(record.outputIds.join());
    if (labels === undefined) continue;
    const wanted = truth(record);
    assert.equal(labels.length, wanted.length);
    const at = labels.findIndex((label, i) => label !== null && label !== wanted[i]);
    assert.equal(at, -1, `token ${at} of ${labels.length}: ${labels[at]} on record, ${wanted[at]} at the engine`);
    count += labels.filter((label) => label !== null).length;
  }
  return count;
}

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: an engine that was restarted between two checks gets its weights again, and its tokens never the name of others`, async (t) => {
    const scene = await start(t, [kind]);
    const [engine] = scene.engines;
    await scene.swap('step-7');
    await askAll(scene, kind, 0);
    await engine!.kill();
    const { port } = engine!;
    const again = await startSimEngine({
      kind,
      port,
      timeScale: 0,
      meanOutputTokens: 0,
      onFinished: (record) => void scene.log.push(record),
    });
    t.after(() => again.close());
    await askAll(scene, kind, 1);
    await checkRecord(scene);
    await until('the engine has the weights of the fleet', () => again.core.weightVersion === 'step-7');
    await until('it serves', () => scene.router.fleet.eligible.length === 1);
    const before = await checkRecord(scene);
    await askAll(scene, kind, 2);
    assert.equal(scene.log.at(-1)!.weightVersions[0]!.version, 'step-7');
    const more = (await checkRecord(scene)) - before;
    assert.ok(more >= 40, `${more} tokens have their version`);
  });

  test(`${kind}: an engine that is restarted twice within seconds serves only the weights of the fleet`, async (t) => {
    const isHeld = Promise.withResolvers<void>();
    const script = () => ({ ids: [410, 411], holdAt: 4, onHeld: isHeld.resolve });
    const scene = await start(t, [kind]);
    const { engines, router, swap, log, post } = scene;
    await swap('step-4');
    let [engine] = engines;
    const restart = async (): Promise<void> => {
      await engine!.kill();
      const onFinished = (record: FinishedRecord): void => void log.push(record);
      const { port } = engine!;
      engine = await startSimEngine({ kind, port, timeScale: 0, meanOutputTokens: 0, script, onFinished });
      t.after(() => engine!.close());
    };
    await restart();
    await until('it has the weights of the fleet', () => engine!.core.weightVersion === 'step-4');
    const serves = () => router.fleet.eligible.length === 1;
    await until('it serves', serves);
    // What is checked when it begins to serve is checked.
    await delay(100);
    await restart();
    await delay(50);
    const chat = { messages: [{ role: 'user', content: 'Go on' }], max_tokens: 8, stream: true };
    let response: Response;
    await until('it serves again', async () => {
      response = await post('/v1/chat/completions', chat, { 'x-session-id': 'over' });
      // The router may notice the restart only now.
      if (response.status === 503) await response.text();
      return response.status !== 503;
    });
    assert.equal(response!.status, 200);
    await isHeld.promise;
    const served = engine!.core.weightVersion;
    await swap('step-5');
    engine!.core.release(() => true);
    await response!.text();
    assert.equal(served, 'step-4', 'it serves when it has loaded them');
    await untilIdle(router);
    assert.ok((await checkRecord(scene)) > 0);
  });

  test(`${kind}: tokens of weights that were updated past the router never have the name of others`, async (t) => {
    const scene = await start(t, [kind]);
    const [engine] = scene.engines;
    await scene.swap('step-7');
    await askAll(scene, kind, 0);
    await engine!.core.loadWeights('/elsewhere', 'step-8');
    await askAll(scene, kind, 1);
    await checkRecord(scene);
    await until('the router has noticed, and loaded those of the fleet', () => engine!.core.weightVersion === 'step-7');
    await until('it serves', () => scene.router.fleet.eligible.length === 1);
    const before = await checkRecord(scene);
    await askAll(scene, kind, 2);
    assert.ok((await checkRecord(scene)) - before >= 40);
  });

  test(`${kind}: an engine that names other weights gets no request until it has loaded those of the fleet`, async (t) => {
    const scene = await start(t, [kind]);
    const { router, log } = scene;
    const [engine] = scene.engines;
    const ask = async (session: string): Promise<number> => {
      const chat = { messages: [{ role: 'user', content: 'Go on' }], max_tokens: 8 };
      const response = await scene.post('/v1/chat/completions', chat, { 'x-session-id': session });
      await response.text();
      return response.status;
    };
    await scene.swap('step-7');
    await engine!.core.loadWeights('/elsewhere', 'step-8');
    const mayLoad = holdLoads(t, engine!);
    // Its response names the weights. Where a health check reads the name before, it may be in the engine when that begins to load, and waits there.
    const asked = ask('first');
    await until('the router has noticed', () => router.fleet.eligible.length === 0);
    assert.deepEqual(await Promise.all(['first', 'second', 'third'].map(ask)), [503, 503, 503]);
    assert.ok(log.length <= 1);
    mayLoad();
    assert.ok([200, 503].includes(await asked));
    await until('it serves', () => router.fleet.eligible.length === 1);
    assert.equal(engine!.core.weightVersion, 'step-7');
    assert.equal(await ask('first'), 200);
  });
}

for (const query of ['', '?worker=']) {
  test(`sglang: an update through the router${query === '' ? '' : ', of one worker,'} is the snapshot from then on`, async (t) => {
    const scene = await start(t, ['sglang']);
    const [engine] = scene.engines;
    await scene.swap('step-7');
    const path = `/update_weights_from_disk${query === '' ? '' : query + encodeURIComponent(engine!.url)}`;
    const order = { model_path: '/elsewhere', weight_version: 'step-8', flush_cache: false };
    assert.equal((await scene.post(path, order)).status, 200);
    const known = async (): Promise<string> => (await fetch(`${scene.router.url}/swap`)).text();
    await until('the update is known', async () => (await known()).includes('"snapshot":"step-8"'));
    await askAll(scene, 'sglang', 0);
    assert.equal(engine!.core.weightVersion, 'step-8', 'it was not loaded over');
    const versions = new Set([...(await recorded(scene)).values()].flat());
    assert.deepEqual(versions, new Set(['step-8']));
  });
}

test('vllm without names: an engine that was restarted is not taken for one with the weights of before', async (t) => {
  const scene = await start(t, ['vllm']);
  const isMute = ({ core }: SwapScene['engines'][number]): void => {
    core.faults.add('/weight_info', 'fail_before', Infinity);
    core.faults.add('/update_weight_version', 'fail_before', Infinity);
  };
  const [engine] = scene.engines;
  isMute(engine!);
  await scene.swap('step-7');
  await askAll(scene, 'vllm', 0);
  assert.deepEqual(new Set([...(await recorded(scene)).values()].flat()), new Set(['step-7']));
  await engine!.kill();
  const { port } = engine!;
  const again = await startSimEngine({ kind: 'vllm', port, timeScale: 0, meanOutputTokens: 0 });
  isMute(again);
  t.after(() => again.close());
  await until('it loads the weights of the fleet', () => again.core.modelPath === '/snapshots/step-7');
  await until('it serves', () => scene.router.fleet.eligible.length === 1);
});

test('sglang: a stream of /generate over the first swap has the versions that its engine names', async (t) => {
  const scene = await start(t, ['sglang'], {
    timeScale: 0.1,
    weightLoadMs: 100,
    script: () => ({ ids: [], holdAt: 30 }),
  });
  const { core } = scene.engines[0]!;
  const sampling_params = { max_new_tokens: 400, ignore_eos: true };
  const asked = [3, 4, 5].map((id) =>
    scene
      .post('/generate', { input_ids: [400 + id], sampling_params, stream: true })
      .then((response) => response.text()),
  );
  await until('each has tokens of the first weights', () => core.scheduler.resting.length === 3);
  await scene.swap('v1');
  core.release(() => true);
  await Promise.all(asked);
  for (const record of scene.log) assert.deepEqual(new Set(truth(record)), new Set(['base', 'v1']));
  assert.equal(await checkRecord(scene), 1_200, 'each has its version');
});

for (const [kind, n] of [
  ['vllm', 2],
  ['sglang', 1],
] as const) {
  test(`${kind}: a client that does not read over a swap, ${n} samples: each token has the weights that sampled it, or none`, async (t) => {
    const script = () => ({ ids: [], holdAt: 4_000 });
    const options = { timeScale: 0.01, weightLoadMs: 50_000, maxModelTokens: 100_000, script };
    const scene = await start(t, [kind], options);
    const [engine] = scene.engines;
    const request = { prompt: [400, 401], max_tokens: 4_500, stream: true, logprobs: 5, return_token_ids: true, n };
    const body = JSON.stringify({ model: 'sim', ignore_eos: true, ...request });
    const { hostname, port } = new URL(scene.router.url);
    const socket = connect({ host: hostname, port: Number(port) });
    t.after(() => socket.destroy());
    socket.write(
      `POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    socket.pause();
    await until('it has sampled more than is read', () => engine!.core.scheduler.resting.length === n);
    await scene.swap('v1');
    engine!.core.release(() => true);
    socket.resume();
    await new Promise((resolve) => socket.once('close', resolve));
    await until('the engine has ended', () => scene.log.length === n);
    const from = truth(scene.log[0]!).indexOf('v1');
    assert.ok(from > 3_000 && from < 4_500, `the swap came after ${from} tokens`);
    assert.ok(
      (await checkRecord(scene)) >= 3_000,
      'where the place of the change is not known, later versions are not',
    );
  });
}
