import assert from 'node:assert/strict';
import { test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until, within } from '../harness/within.ts';
import { abortAll, generate, startResumeScene } from './generations.ts';

interface Recorded {
  readonly page: readonly {
    readonly worker: string;
    readonly tokens: readonly number[];
    readonly loss_mask: readonly number[];
    readonly versions: readonly { version: string | null; from: number; to: number }[];
    readonly seams: readonly { at: number; worker: string; version: string | null; cause: string }[];
  }[];
}

/** The first sequence of the fleet waits at so many tokens, until its engine dies or is released. */
function holding(holdAt: number) {
  const held = Promise.withResolvers<void>();
  let isFirst = true;
  const script = () => {
    if (!isFirst) return undefined;
    isFirst = false;
    return { ids: [], holdAt, onHeld: held.resolve };
  };
  return { script, held: within(held.promise, 'a generation is held') };
}

const recordOf = async (url: string, session: string): Promise<Recorded> =>
  (await (await fetch(`${url}/trajectories/${session}`)).json()) as Recorded;

for (const kind of ['sglang', 'vllm'] as const) {
  test(`${kind}: a record has the seam of a swap and the versions of both parts`, async (t) => {
    const { script, held } = holding(6);
    const tokenizerPath = temporaryFolder(t);
    writeTokenizer(tokenizerPath);
    const options = {
      swapSnapshots: '/weights/{identity}',
      tokenizerPath,
      plugin: ['radix-tree:{"completions":true}'],
    };
    const scene = await startResumeScene(t, kind, 1, options, { script, weightLoadMs: 60, timeScale: 0.1 });
    const [engine] = scene.engines;
    const body = { prompt: [300, 301, 302], stream: true, seed: 3, max_tokens: 20, logprobs: 1 };
    const answer = generate(scene.router.url, '/v1/completions', body, { 'x-session-id': 's' });
    await held;
    await fetch(`${scene.router.url}/swap`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ identity: 'step-1', path: 'sim' }),
    });
    await until('the engine stands still', () => engine!.stats().paused);
    await abortAll(engine!);
    const seen = await answer;
    const expected = await generate(scene.undisturbed.url, '/v1/completions', { ...body, return_token_ids: true });
    assert.deepEqual({ ...seen, ids: expected.ids }, expected);
    await untilIdle(scene.router);
    const [turn] = (await recordOf(scene.router.url, 's')).page;
    const sampled = turn!.tokens.filter((_, i) => turn!.loss_mask[i] === 1);
    assert.deepEqual(sampled, expected.ids);
    const [seam, ...others] = turn!.seams;
    assert.deepEqual(others, []);
    assert.ok(seam!.at > 3 && seam!.at < 23, String(seam!.at));
    assert.deepEqual(turn!.seams, [{ at: seam!.at, worker: engine!.url, version: 'base', cause: 'aborted' }]);
    assert.deepEqual(turn!.versions, [
      { version: 'base', from: 3, to: seam!.at },
      { version: 'step-1', from: seam!.at, to: 23 },
    ]);
  });
}

const CHAT = {
  model: 'sim',
  messages: [{ role: 'user', content: 'go on' }],
  stream: true,
  seed: 3,
  max_tokens: 20,
};

test('vllm: a response has the weight versions of all parts, also where no version was ever set', async (t) => {
  const { script, held } = holding(6);
  const scene = await startResumeScene(t, 'vllm', 2, {}, { script, timeScale: 0.1 });
  const { workers } = scene.router.fleet;
  await until('the router has asked for versions', () => workers.every(({ weightVersion }) => weightVersion !== null));
  const versionsOf = async (url: string): Promise<unknown> => {
    const body = { token_ids: [300, 301, 302], stream: true, sampling_params: { seed: 3, max_tokens: 20 } };
    const response = await fetch(`${url}/inference/v1/generate`, { method: 'POST', body: JSON.stringify(body) });
    const written = /"weight_versions":(\[.*?\])/.exec(await response.text());
    return JSON.parse(written![1]!) as unknown;
  };
  const versions = versionsOf(scene.router.url);
  await held;
  await until('the router has read tokens', () => [...scene.router.pipeline.inFlight][0]!.answerReads > 0);
  await scene.killed(scene.engines.findIndex((engine) => engine.stats().generatedTokens > 0));
  assert.deepEqual(await versions, [{ version: 'default', start: 0, end: 20 }]);
  assert.match(await scene.metrics(), /turnout_resumes_total\{cause="cut"\} 1/);
});

for (const streamCoalesceMs of [0, 500]) {
  const how = streamCoalesceMs === 0 ? '' : ' while a read is delayed';
  test(`a captured chat survives its engine${how}, and its record is exact`, async (t) => {
    const { script, held } = holding(6);
    const tokenizerPath = temporaryFolder(t);
    writeTokenizer(tokenizerPath);
    const options = { tokenizerPath, plugin: ['chat-sessions'], captureChat: true, streamCoalesceMs };
    const scene = await startResumeScene(t, 'vllm', 2, options, { script, timeScale: 0.1 });
    const { engines, router } = scene;
    const answer = generate(router.url, '/v1/chat/completions', CHAT, { 'x-session-id': 'c' });
    await held;
    const first = engines.findIndex((engine) => engine.stats().generatedTokens > 0);
    const { url } = engines[first]!;
    await scene.killed(first);
    const seen = await answer;
    const expected = await generate(scene.undisturbed.url, '/v1/chat/completions', { ...CHAT, return_token_ids: true });
    assert.deepEqual({ ...seen, ids: expected.ids }, expected);
    assert.equal(seen.roles, 1);
    await untilIdle(router);
    const [turn] = (await recordOf(router.url, 'c')).page;
    assert.deepEqual(
      turn!.tokens.filter((_, i) => turn!.loss_mask[i] === 1),
      expected.ids,
    );
    assert.deepEqual(
      turn!.seams.map(({ worker, cause }) => [worker, cause]),
      [[url, 'cut']],
    );
    assert.notEqual(turn!.worker, url);
  });
}

for (const { how, name, isAmid, seam, versions } of [
  { how: 'stayed', name: null, isAmid: false, seam: 'step-6', versions: ['step-6', 'step-6'] },
  { how: 'changed amid the first part', name: 'step-7', isAmid: true, seam: null, versions: [null, 'step-7'] },
  { how: 'were updated before under the same name', name: 'step-6', isAmid: false, seam: null, versions: [null, null] },
]) {
  test(`a record names the weights of each part by its own engine: they ${how}`, async (t) => {
    const { script, held } = holding(6);
    const tokenizerPath = temporaryFolder(t);
    writeTokenizer(tokenizerPath);
    const options = { tokenizerPath, plugin: ['chat-sessions'], captureChat: true };
    const simOptions = { script, timeScale: 0.1, weightVersion: 'step-6' };
    const { engines, router } = await startResumeScene(t, 'vllm', 2, options, simOptions);
    await until('names are known', () => router.fleet.workers.every(({ weightVersion }) => weightVersion === 'step-6'));
    const update = async (): Promise<void> => {
      if (name === null) return;
      const body = JSON.stringify({ new_version: name });
      const headers = { 'content-type': 'application/json' };
      const updated = await fetch(`${router.url}/update_weight_version`, { method: 'POST', headers, body });
      assert.equal(updated.status, 200, await updated.text());
    };
    if (!isAmid) await update();
    const answer = generate(router.url, '/v1/chat/completions', CHAT, { 'x-session-id': 'c' });
    await held;
    await until('the router has read tokens', () => [...router.pipeline.inFlight][0]!.answerReads > 0);
    if (isAmid) await update();
    await engines.find((engine) => engine.stats().generatedTokens > 0)!.kill();
    assert.equal((await answer).finish, 'length');
    await untilIdle(router);
    let turn: Recorded['page'][number] | undefined;
    await until('the last engine was asked', async () => {
      [turn] = (await recordOf(router.url, 'c')).page;
      return turn?.versions.at(-1)?.version === versions[1];
    });
    assert.deepEqual(
      turn!.seams.map(({ version }) => version),
      [seam],
    );
    const { at } = turn!.seams[0]!;
    assert.deepEqual(
      turn!.versions.map(({ version, from, to }) => [version, from < at, to <= at]),
      versions.map((version, i) => [version, i === 0, i === 0]),
    );
  });
}
