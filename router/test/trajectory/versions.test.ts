import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { metric } from '../admission/metric.ts';
import { startEngines } from '../harness/chat-scene.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { type RouterOptions, startTestRouter, untilIdle } from '../harness/router.ts';
import { readSamples } from '../harness/safetensors.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

interface Line {
  readonly session: string;
  readonly tokens: readonly number[];
  readonly loss_mask: readonly number[];
  readonly versions: readonly { version: string | null; from: number; to: number; before?: string; after?: string }[];
}

const UNKNOWN = 'turnout_trajectory_unknown_versions_total';
const PLUGINS = ['chat-sessions', 'radix-tree:{"completions":true}'];

/** A router with both plugins, whose health checks come once in a minute. */
async function start(t: TestContext, sim: Partial<SimOptions>, options: RouterOptions = {}) {
  const [engine] = await startEngines(t, 1, [], { meanOutputTokens: 0, ...sim });
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const router = await startTestRouter(t, {
    workerUrls: [engine!.url],
    tokenizerPath,
    plugin: PLUGINS,
    captureChat: true,
    disableHealthCheck: false,
    healthCheckIntervalSecs: 60,
    pluginTimeoutMs: 60_000,
    ...options,
  });
  const { disableHealthCheck: isUnchecked = false } = options;
  await until('the router knows its engine', () =>
    router.fleet.workers.every(({ models }) => isUnchecked || models !== null),
  );
  const post = async (url: string, body: object, session = ''): Promise<string> => {
    const headers: Record<string, string> = { 'content-type': 'application/json' };
    if (session !== '') headers['x-session-id'] = session;
    const response = await fetch(url, { method: 'POST', body: JSON.stringify(body), headers });
    const text = await response.text();
    assert.equal(response.status, 200, text);
    return text;
  };
  return {
    router,
    engine: engine!,
    ask: async (path: string, body: object, session: string): Promise<string> => {
      const text = await post(router.url + path, body, session);
      await untilIdle(router);
      return text;
    },
    /** As trainers do: past the router. */
    steer: (path: string, body: object) => post(engine!.url + path, body),
    /** The same by the router. */
    control: (path: string, body: object) => post(router.url + path, body),
    versions: async (session: string) => {
      const jsonl = await (await fetch(`${router.url}/trajectories?format=jsonl&session=${session}`)).text();
      return jsonl
        .split('\n')
        .filter((json) => json !== '')
        .flatMap((json) => (JSON.parse(json) as Line).versions.map(withoutPlace));
    },
  };
}

const withoutPlace = ({ version, before, after }: Line['versions'][number]): Partial<Line['versions'][number]> => ({
  version,
  ...(before === undefined ? {} : { before }),
  ...(after === undefined ? {} : { after }),
});

type Scene = Awaited<ReturnType<typeof start>>;

const messages = [{ role: 'user', content: 'Hello' }];
const chat = (more: object = {}) => ({ model: 'sim', messages, max_tokens: 4, ...more });
const completion = (more: object = {}) => ({ model: 'sim', prompt: encode('Hello'), max_tokens: 4, ...more });
const CHATS = '/v1/chat/completions';

/** Every call whose answer does not name the weights. */
const unnamed: readonly (readonly [SimOptions['kind'], string, object])[] = [
  ['sglang', CHATS, chat({ stream: true })],
  ['sglang', '/v1/completions', completion({ stream: true })],
  ['sglang', '/v1/completions', completion({ n: 2 })],
  ['vllm', CHATS, chat()],
  ['vllm', CHATS, chat({ stream: true })],
  ['vllm', CHATS, chat({ tools: [{ type: 'function', function: { name: 'f', parameters: {} } }] })],
  ['vllm', '/v1/completions', completion()],
  ['vllm', '/v1/completions', completion({ stream: true })],
];

for (const [kind, path, body] of unnamed) {
  const what = `${kind} ${path} ${Object.keys(body).slice(3).join()}`;
  test(`${what}: the version after an update past the router is the new one, or not known`, async (t) => {
    const scene = await start(t, { kind, weightVersion: '7' });
    await scene.ask(path, body, 'before');
    assert.deepEqual([...new Set((await scene.versions('before')).map(({ version }) => version))], ['7']);
    await scene.steer('/update_weight_version', { new_version: '8', abort_all_requests: false });
    await scene.ask(path, body, 'right-after');
    for (const span of await scene.versions('right-after')) {
      // Nobody had asked between the update and the request; or somebody had.
      if (span.version === null) assert.deepEqual(span, { version: null, before: '7', after: '8' });
      else assert.equal(span.version, '8');
    }
    await scene.ask(path, body, 'later');
    const names = new Set((await scene.versions('later')).map(({ version }) => version));
    assert.deepEqual([...names].at(-1), '8');
    assert.ok(!names.has('7'));
  });
}

/** Gives the weights another name between two tokens of a generation. */
async function renamedAmid({ engine: { core }, steer }: Scene, new_version: string): Promise<void> {
  await until('it runs', () => core.scheduler.running.some(({ output }) => output.length > 2));
  await core.pause('keep');
  await steer('/update_weight_version', { new_version, abort_all_requests: false });
  core.resume();
}

test('a stream that was sent before an update past the router and ended after it has no version', async (t) => {
  for (const kind of ['sglang', 'vllm'] as const) {
    const scene = await start(t, { kind, weightVersion: '7', timeScale: 0.5 });
    const asked = scene.ask(CHATS, chat({ stream: true, max_tokens: 40, ignore_eos: true }), 's');
    await renamedAmid(scene, '8');
    await asked;
    assert.deepEqual(await scene.versions('s'), [{ version: null, before: '7', after: '8' }]);
    assert.equal(
      ((await (await fetch(`${scene.router.url}/trajectories?version=7`)).json()) as { trajectories: unknown[] })
        .trajectories.length,
      0,
    );
    const samples = await fetch(`${scene.router.url}/sessions/s/samples`, { method: 'POST', body: '{}' });
    const [sample] = readSamples(Buffer.from(await samples.arrayBuffer()));
    assert.deepEqual(sample!.meta.weight_versions, [null]);
    const { weight_version_spans: spans } = sample!.meta.metadata as { weight_version_spans: Line['versions'] };
    assert.deepEqual([spans[0]!.version, spans[0]!.before, spans[0]!.after], [null, '7', '8']);
    await until('it is counted', async () => (await metric(scene.router, UNKNOWN)) === 1);
  }
});

test('what an answer of SGLang names is the version of its tokens, over an update too', async (t) => {
  const scene = await start(t, { kind: 'sglang', weightVersion: '7', timeScale: 0.5 });
  const sampling_params = { max_new_tokens: 40, ignore_eos: true };
  const calls: readonly [string, object][] = [
    ['/generate', { text: 'Hello', sampling_params }],
    ['/generate', { text: 'Hello', sampling_params, stream: true }],
    ['/v1/completions', completion({ max_tokens: 40, ignore_eos: true })],
    [CHATS, chat({ max_tokens: 40, ignore_eos: true })],
  ];
  for (const [i, [path, body]] of calls.entries()) {
    const asked = scene.ask(path, body, `s${i}`);
    const before = i === 0 ? '7' : String(7 + i);
    await renamedAmid(scene, String(8 + i));
    await asked;
    assert.deepEqual(await scene.versions(`s${i}`), [{ version: before }, { version: String(8 + i) }], path);
  }
});

async function lastVersions({ ask, versions }: Scene, body: object): Promise<unknown> {
  const session = `s${Math.random()}`;
  await ask(CHATS, body, session);
  return versions(session);
}

test('each choice of a whole chat has a version, where SGLang names one for the response', async (t) => {
  const { ask, versions } = await start(t, { kind: 'sglang', weightVersion: 'v-1', experts: 2 });
  for (const [session, more] of Object.entries({
    'with routed experts': { return_routed_experts: true },
    'with meta_info': {},
  })) {
    const body = { messages: [{ role: 'user', content: 'Go.' }], n: 3, max_tokens: 4, ...more };
    await ask('/v1/chat/completions', body, session);
    assert.deepEqual(await versions(session), [{ version: 'v-1' }, { version: 'v-1' }, { version: 'v-1' }], session);
  }
});

test('a name that was never set proves nothing', async (t) => {
  for (const kind of ['sglang', 'vllm'] as const) {
    const scene = await start(t, { kind, weightVersion: 'default' });
    const spans = await lastVersions(scene, chat({ stream: true }));
    assert.deepEqual(spans, [{ version: null, before: 'default', after: 'default' }]);
    await scene.steer('/update_weight_version', { new_version: '1', abort_all_requests: false });
    await lastVersions(scene, chat({ stream: true }));
    assert.deepEqual(await lastVersions(scene, chat({ stream: true })), [{ version: '1' }]);
  }
});

test('a name that stays the same over an update by the router proves nothing, until it changes', async (t) => {
  const scene = await start(t, { kind: 'vllm', weightVersion: '7', weightLoadMs: 0 });
  assert.deepEqual(await lastVersions(scene, chat()), [{ version: '7' }]);
  await scene.control('/collective_rpc', { method: 'reload_weights', kwargs: { weights_path: 'other' } });
  assert.deepEqual(await lastVersions(scene, chat()), [{ version: null, before: '7', after: '7' }]);
  await scene.control('/update_weight_version', { new_version: '8' });
  assert.deepEqual(
    await lastVersions(scene, chat()),
    [{ version: '8' }],
    'it was asked before the control was answered',
  );
});

test('a name in an answer of SGLang that stayed the same over an update by the router proves nothing, either', async (t) => {
  const scene = await start(t, { kind: 'sglang', weightVersion: '7' });
  const generate = { input_ids: encode('Hello'), sampling_params: { max_new_tokens: 4 }, return_logprob: true };
  await scene.ask('/generate', generate, 'before');
  assert.deepEqual(await scene.versions('before'), [{ version: '7' }]);
  await scene.control('/update_weights_from_disk', { model_path: 'other' });
  await until('it is known that the name is stale', async () => {
    const session = `after-${performance.now()}`;
    await scene.ask('/generate', generate, session);
    return (await scene.versions(session))[0]!.version === null;
  });
  await scene.control('/update_weights_from_disk', { model_path: 'third', weight_version: '8' });
  await scene.ask('/generate', generate, 'named');
  assert.deepEqual(await scene.versions('named'), [{ version: '8' }]);
});

test('without health checks versions are known too', async (t) => {
  const scene = await start(
    t,
    { kind: 'vllm', weightVersion: '7' },
    {
      disableHealthCheck: true,
      plugin: ['chat-sessions:{"engine":"vllm"}'],
    },
  );
  await lastVersions(scene, chat({ max_tokens: 3 }));
  assert.deepEqual(await lastVersions(scene, chat({ max_tokens: 3 })), [{ version: '7' }]);
});

/** An engine as vLLM 0.32, whose every answer is the test's. */
async function fakeVllm(t: TestContext, weightInfo: () => string | null) {
  const engine = await startEngine(t, {
    control: (path) => {
      if (path === '/health') return answer(200, '');
      if (path === '/version') return answer(200, '{"version":"0.32.0"}');
      return path === '/weight_info' ? weightInfo() : answer(404, '');
    },
  });
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const router = await startTestRouter(t, {
    workerUrls: [engine.url],
    tokenizerPath,
    plugin: ['radix-tree:{"completions":true,"verify":false}'],
    disableHealthCheck: false,
    healthCheckIntervalSecs: 60,
    healthCheckTimeoutSecs: 30,
    maxConcurrentRequests: 1000,
  });
  await until('the router knows its engine', () => router.fleet.workers[0]!.engine === 'vllm');
  const ask = (session: string) =>
    fetch(`${router.url}/v1/completions`, {
      method: 'POST',
      body: JSON.stringify(completion()),
      headers: { 'x-session-id': session },
    }).then((response) => response.text());
  const choice = { index: 0, text: 'a', token_ids: [97], finish_reason: 'length', logprobs: null };
  const body = JSON.stringify({ choices: [{ ...choice, prompt_token_ids: encode('Hello') }] });
  return { engine, router, ask, body };
}

test('one question serves all answers that ended before it was asked', async (t) => {
  const scene = await fakeVllm(t, () => answer(200, '{"weight_version":"7"}'));
  const questions = (): number => scene.engine.questions.filter((path) => path === '/weight_info').length;
  const asked = Array.from({ length: 200 }, (_, i) => scene.ask(`s${i}`));
  await until('all are at the engine', () => scene.engine.requests.length === 200);
  const before = questions();
  const fromMs = performance.now();
  for (const request of scene.engine.requests) request.answer(scene.body);
  await Promise.all(asked);
  await untilIdle(scene.router);
  const jsonl = await (await fetch(`${scene.router.url}/trajectories?format=jsonl`)).text();
  const lines = jsonl.split('\n').filter((json) => json !== '');
  assert.equal(lines.length, 200);
  for (const json of lines) assert.equal((JSON.parse(json) as Line).versions[0]!.version, '7');
  // One each 50 ms at most, however many ended; the reading of the record asks one at once.
  const most = 2 + Math.ceil((performance.now() - fromMs) / 50);
  assert.ok(questions() - before <= most, `${questions() - before} questions, at most ${most}`);
  assert.ok(questions() - before < 100);
});

test('a question that is not answered delays no answer, and its turn has no version', async (t) => {
  let isMute = false;
  const scene = await fakeVllm(t, () => (isMute ? null : answer(200, '{"weight_version":"7"}')));
  isMute = true;
  const asked = scene.ask('s');
  (await scene.engine.next()).answer(scene.body);
  await asked;
  await untilIdle(scene.router);
  const [line] = (await (await fetch(`${scene.router.url}/trajectories?format=jsonl`)).text()).split('\n');
  assert.deepEqual((JSON.parse(line!) as Line).versions, [{ version: null, from: 5, to: 6, before: '7' }]);
});
