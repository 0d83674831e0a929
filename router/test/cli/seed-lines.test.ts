import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type EngineRequest, startEngine } from '../harness/engine.ts';
import { startFakeKube } from '../harness/kube-api.ts';
import { PairWorld } from '../harness/pairs.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';
import { turnout } from './turnout.ts';
import { VllmWorld } from '../harness/vllm-pairs.ts';

/**
 * Command lines as the documentation of the other routers has them, word for word: SGLang's and vllm-router's. Their hosts are
 * engines of the test here, and `python -m sglang_router.launch_router` is `turnout launch_router`.
 */
const lines: readonly string[] = [
  `python -m sglang_router.launch_router \\
    --worker-urls http://worker1:8000 http://worker2:8001 \\
    --host 0.0.0.0 \\
    --port 30000 \\
    --policy cache_aware  # or random, round_robin, power_of_two`,
  `python -m sglang_router.launch_router \\
    --worker-urls http://worker1:8000 http://worker2:8001 \\
    --retry-max-retries 3 \\
    --retry-initial-backoff-ms 100 \\
    --retry-max-backoff-ms 10000 \\
    --retry-backoff-multiplier 2.0 \\
    --retry-jitter-factor 0.1`,
  `python -m sglang_router.launch_router \\
    --worker-urls http://worker1:8000 http://worker2:8001 \\
    --cb-failure-threshold 5 \\
    --cb-success-threshold 2 \\
    --cb-timeout-duration-secs 30 \\
    --cb-window-duration-secs 60`,
  `python -m sglang_router.launch_router \\
    --worker-urls http://worker1:8000 http://worker2:8001 \\
    --prometheus-port 29000 \\
    --prometheus-host 0.0.0.0`,
  `python -m sglang_router.launch_router \\
    --worker-urls http://worker1:8000 http://worker2:8001 \\
    --request-id-headers x-request-id x-trace-id`,
  `python -m sglang_router.launch_router \\
    --worker-urls http://worker1:8000 http://worker2:8001 \\
    --log-level debug \\
    --log-dir ./router_logs`,
  'vllm-router --policy consistent_hash --worker-urls http://worker1:8000,http://worker2:8000',
  'vllm-router --policy round_robin --worker-urls http://worker1:8000,http://worker2:8000',
  'vllm-router --policy random --worker-urls http://worker1:8000,http://worker2:8000',
  'vllm-router --policy power_of_two --worker-urls http://worker1:8000,http://worker2:8000,http://worker3:8000',
  `vllm-router --policy cache_aware \\
  --cache-threshold 0.5 \\
  --balance-abs-threshold 32 \\
  --balance-rel-threshold 1.1 \\
  --worker-urls http://worker1:8000,http://worker2:8000`,
];

/** Flags that stand alone there, for a line of one's own. */
const fragments: readonly string[] = [
  '--policy random',
  '--policy round_robin',
  '--policy power_of_two',
  `--policy cache_aware \\
--cache-threshold 0.5 \\
--balance-abs-threshold 32 \\
--balance-rel-threshold 1.0001`,
].map(
  (flags) => `python -m sglang_router.launch_router --worker-urls http://worker1:8000 http://worker2:8001 ${flags}`,
);

/** Prefill and decode engines, SGLang's. */
const pairs: readonly string[] = [
  `python -m sglang_router.launch_router \\
    --pd-disaggregation \\
    --prefill http://prefill1:8000 9000 \\
    --prefill http://prefill2:8001 9001 \\
    --decode http://decode1:8002 \\
    --decode http://decode2:8003 \\
    --prefill-policy cache_aware \\
    --decode-policy round_robin`,
  `python -m sglang_router.launch_router \\
    --pd-disaggregation \\
    --prefill http://prefill1:8000 \\
    --prefill http://prefill2:8000 \\
    --decode http://decode1:8001 \\
    --decode http://decode2:8001 \\
    --policy round_robin \\
    --prefill-policy cache_aware  # Prefill uses cache_aware and decode uses round_robin from --policy`,
];

/** Those of vLLM's engines. */
const vllmPairs: readonly string[] = [
  `vllm-router \\
  --mode pd \\
  --prefill-policy consistent_hash \\
  --decode-policy round_robin \\
  --prefill-workers http://prefill1:8000,http://prefill2:8000 \\
  --decode-workers http://decode1:8000,http://decode2:8000`,
];

/** Those that look for pods. */
const discovering: readonly string[] = [
  `python -m sglang_router.launch_router \\
    --service-discovery \\
    --selector app=sglang-worker env=prod \\
    --service-discovery-namespace production \\
    --service-discovery-port 8000`,
  `python -m sglang_router.launch_router \\
    --pd-disaggregation \\
    --service-discovery \\
    --prefill-selector app=prefill-server tier=gpu \\
    --decode-selector app=decode-server tier=cpu \\
    --service-discovery-namespace production \\
    --prefill-policy cache_aware \\
    --decode-policy round_robin`,
  `python -m sglang_router.launch_router \\
    --pd-disaggregation \\
    --service-discovery \\
    --prefill-selector app=prefill-server env=prod \\
    --decode-selector app=decode-server env=prod \\
    --service-discovery-namespace production`,
];

/** The words that a shell makes of a line: none of these has quotes. */
function wordsOf(line: string): string[] {
  const text = line.replace(/#.*$/gm, '').replaceAll('\\\n', ' ');
  const words = text.trim().split(/\s+/);
  return words[0] === 'python' ? words.slice(2).map((word) => word.replace('sglang_router.', '')) : words;
}

/** Starts a line with its hosts at home and on free ports. @returns where it listens, and the engines that it names */
async function start(t: TestContext, line: string) {
  const names = [...new Set(line.match(/http:\/\/worker\d:\d+/g))];
  const engines = await Promise.all(
    names.map((_, i) => startEngine(t, { onRequest: (asked) => asked.answer(`"${i}"`) })),
  );
  const home = names.reduce((text, name, i) => text.replaceAll(name, engines[i]!.url), line);
  const logs = temporaryFolder(t);
  const words = wordsOf(home.replaceAll('0.0.0.0', '127.0.0.1').replace('./router_logs', logs));
  const run = turnout(t, [...words, '--port', '0', '--prometheus-port', '0']);
  return { run, engines };
}

for (const line of [...lines, ...fragments]) {
  test(`starts and routes: ${wordsOf(line).join(' ')}`, async (t) => {
    const { run, engines } = await start(t, line);
    const url = (await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/))[1]!;
    assert.doesNotMatch(run.output(), /has no effect/);
    for (let i = 0; i < 8; i++) {
      const prompt = `question ${i}`;
      const body = JSON.stringify({ model: 'm', prompt, user: `u${i}` });
      const answer = await fetch(`${url}/v1/completions`, { method: 'POST', body });
      assert.equal(answer.status, 200);
    }
    assert.equal(
      engines.reduce((sum, { requests }) => sum + requests.length, 0),
      8,
    );
    const { urls } = (await (await fetch(`${url}/list_workers`)).json()) as { urls: string[] };
    assert.deepEqual(
      urls,
      engines.map((engine) => engine.url),
    );
  });
}

for (const line of pairs) {
  test(`serves pairs: ${wordsOf(line).join(' ')}`, async (t) => {
    const world = new PairWorld(t);
    for (const role of ['prefill', 'prefill', 'decode', 'decode'] as const) await world.add(role);
    const [prefill, decode] = [world.urls.prefill, world.urls.decode];
    const hosts = /http:\/\/(prefill|decode)(\d):\d+/g;
    const home = line.replace(
      hosts,
      (_, role: string, n: string) => (role === 'prefill' ? prefill : decode)[Number(n) - 1]!,
    );
    const { run } = await start(t, home);
    const url = (await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/))[1]!;
    assert.doesNotMatch(run.output(), /has no effect/);
    await until('there is a pair', async () => (await fetch(`${url}/readiness`)).status === 200);
    const body = JSON.stringify({ text: 'The capital of France is', sampling_params: { max_new_tokens: 8 } });
    for (let i = 0; i < 4; i++) assert.equal((await fetch(`${url}/generate`, { method: 'POST', body })).status, 200);
  });
}

test('starts with ranks: launch_router --dp-aware --api-key your_api_key', async (t) => {
  const { run, engines } = await start(
    t,
    `python -m sglang_router.launch_router --dp-aware --api-key your_api_key  # Required for worker authentication
    --worker-urls http://worker1:8000`.replace(/#.*\n/, ''),
  );
  const url = (await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/))[1]!;
  const headers = { authorization: 'Bearer your_api_key' };
  await until('its engine serves', async () => (await fetch(`${url}/v1/models`, { headers })).status === 200);
  assert.equal(engines[0]!.requests[0]!.head.get('authorization'), 'Bearer your_api_key');
});

for (const line of vllmPairs) {
  test(`serves pairs of vLLM engines: ${wordsOf(line).join(' ')}`, async (t) => {
    const world = new VllmWorld(t, 'nixl');
    for (const role of ['prefill', 'prefill', 'decode', 'decode'] as const) await world.add(role);
    const hosts = /http:\/\/(prefill|decode)(\d):\d+/g;
    const home = line.replace(hosts, (_, role: 'prefill' | 'decode', n: string) => world.urls[role][Number(n) - 1]!);
    const { run } = await start(t, home);
    const url = (await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/))[1]!;
    assert.doesNotMatch(run.output(), /has no effect/);
    await until('there is a pair', async () => (await fetch(`${url}/readiness`)).status === 200);
    const body = JSON.stringify({ model: 'm', prompt: 'The capital of France is', max_tokens: 8 });
    for (let i = 0; i < 4; i++) {
      assert.equal((await fetch(`${url}/v1/completions`, { method: 'POST', body })).status, 200);
    }
    const seen = (role: 'prefill' | 'decode') => world[role].map((half) => half.seen.length);
    // One prompt is one key there, and the decode engines take turns.
    assert.ok(seen('prefill').includes(4), String(seen('prefill')));
    assert.deepEqual(seen('decode'), [2, 2]);
    assert.deepEqual(
      [...world.prefill, ...world.decode].flatMap(({ wrong }) => wrong),
      [],
    );
  });
}

for (const line of discovering) {
  test(`finds pods: ${wordsOf(line).join(' ')}`, async (t) => {
    const kube = await startFakeKube(t);
    const isPairs = line.includes('--pd-disaggregation');
    const world = new PairWorld(t);
    const options = {
      host: '127.9.0.1',
      ...(isPairs ? {} : { onRequest: (asked: EngineRequest) => asked.answer('{}') }),
    };
    const { engine } = await world.add('prefill', options);
    const port = Number(new URL(engine.url).port);
    if (isPairs) await world.add('decode', { host: '127.9.0.2', port });
    const labelsOf = (flag: string): Record<string, string> =>
      Object.fromEntries(
        new RegExp(`--${flag}((?: \\w+=\\S+)+)`)
          .exec(line)![1]!
          .trim()
          .split(' ')
          .map((pair) => pair.split('=')),
      );
    const pod = { namespace: 'production', annotations: { 'sglang.ai/bootstrap-port': '9000' } };
    kube.set('a', { ...pod, ip: '127.9.0.1', labels: labelsOf(isPairs ? 'prefill-selector' : 'selector') });
    if (isPairs) kube.set('b', { ...pod, ip: '127.9.0.2', labels: labelsOf('decode-selector') });
    const { run } = await start(t, `${line} --service-discovery-port ${port}`);
    const url = (await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/))[1]!;
    assert.doesNotMatch(run.output(), /has no effect/);
    await until('pods are found', async () => (await fetch(`${url}/readiness`)).status === 200);
    const body = JSON.stringify({ text: 'The capital of France is', sampling_params: { max_new_tokens: 8 } });
    for (let i = 0; i < 4; i++) assert.equal((await fetch(`${url}/generate`, { method: 'POST', body })).status, 200);
    if (isPairs)
      assert.deepEqual(
        world.decode[0]!.seen.map(({ ports }) => ports),
        [[9000], [9000], [9000], [9000]],
      );
  });
}

test('a worker comes and goes by the documented calls', async (t) => {
  const { run, engines } = await start(t, 'launch_router --worker-urls http://worker1:8000');
  const url = (await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/))[1]!;
  const other = await startEngine(t);
  const added = await fetch(`${url}/add_worker?url=${other.url}`, { method: 'POST' });
  assert.deepEqual([added.status, await added.text()], [200, `Successfully added worker: ${other.url}`]);
  const removed = await fetch(`${url}/remove_worker?url=${other.url}`, { method: 'POST' });
  assert.deepEqual([removed.status, await removed.text()], [200, `Successfully removed worker: ${other.url}`]);
  const { urls } = (await (await fetch(`${url}/list_workers`)).json()) as { urls: string[] };
  assert.deepEqual(urls, [engines[0]!.url]);
});
