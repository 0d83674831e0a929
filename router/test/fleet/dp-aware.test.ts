import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { loadConfig } from '../../src/config/load.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { type ControlAnswer, answer, startEngine } from '../harness/engine.ts';
import type { Router } from '../../src/router.ts';
import { startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { startInPlaceOf } from '../chaos/scene.ts';
import { until } from '../harness/within.ts';

const json = (value: unknown): string => answer(200, JSON.stringify(value), ['content-type: application/json']);

/** SGLang as it tells of itself; its ranks and their loads. */
function sglang(dpSize: number, loads: readonly number[] = []): ControlAnswer {
  return (path) => {
    if (path === '/health') return answer(200, '');
    if (path === '/model_info') return json({ model_path: 'm', weight_version: 'v1' });
    if (path === '/server_info') return json({ dp_size: dpSize, version: '0.5.23' });
    if (path.startsWith('/v1/loads')) {
      return json({
        loads: loads.map((count, rank) => ({ dp_rank: rank, num_running_reqs: count, num_waiting_reqs: 1 })),
      });
    }
    return answer(404, '');
  };
}

/** vLLM's metrics name the ranks; this is the second node of a group. */
const vllm: ControlAnswer = (path) => {
  if (path === '/health') return answer(200, '');
  if (path === '/version') return json({ version: '0.32.0' });
  if (path !== '/metrics') return answer(404, '');
  const lines = [4, 5, 6].flatMap((rank) => [
    `vllm:num_requests_running{engine="${rank}",model_name="tiny"} ${rank}.0`,
    `vllm:num_requests_waiting{engine="${rank}",model_name="tiny"} 0.0`,
    `vllm:num_requests_waiting_by_reason{engine="${rank}",reason="capacity"} 9.0`,
  ]);
  return answer(200, `${lines.join('\n')}\n`);
};

const options = { disableHealthCheck: false, policy: 'round_robin', healthCheckIntervalSecs: 0.05 };

test('--dp-aware: an engine is asked for its ranks, and gets no work before they are known', async (t) => {
  let isUp = false;
  const engine = await startEngine(t, {
    control: (path) => (isUp ? sglang(3)(path) : answer(503, '')),
    onRequest: (asked) => void asked.payload().then((body) => asked.answer(body.toString())),
  });
  const router = await startTestRouter(t, { ...options, dpAware: true, workerUrls: [engine.url] });
  const { id } = router.fleet.workers[0]!;
  assert.deepEqual(router.fleet.workers[0]!.reasonNames().includes('ranks'), true);
  assert.equal((await send(t, router.url, request('POST', '/generate', '{}'))).status, 503);
  isUp = true;
  await until('its ranks serve', () => router.fleet.eligible.length === 3);
  assert.deepEqual(
    router.fleet.workers.map(({ url, rank, engine: kind, isHealthy }) => [url, rank, kind, isHealthy]),
    [0, 1, 2].map((rank) => [`${engine.url}@${rank}`, rank, 'sglang', true]),
  );
  assert.equal(router.fleet.workers[0]!.id, id, 'the id that was given out leads to its first rank');
  const bodies = [];
  for (let i = 0; i < 3; i++) {
    bodies.push((await send(t, router.url, request('POST', '/generate', '{"seed":9007199254740993}'))).text);
  }
  assert.deepEqual(
    new Set(bodies),
    new Set([0, 1, 2].map((rank) => `{"data_parallel_rank":${rank},"seed":9007199254740993}`)),
  );
  const named = new Set(engine.requests.map(({ head }) => head.get('x-data-parallel-rank')));
  assert.deepEqual(named, new Set(['0', '1', '2']));
  // Added once more it is the same; removed, it goes with all its ranks.
  await send(t, router.url, request('POST', `/add_worker?url=${engine.url}`));
  assert.equal(router.fleet.workers.length, 3);
  const removed = await send(t, router.url, request('POST', `/remove_worker?url=${engine.url}`));
  assert.deepEqual(JSON.parse(removed.text), { status: 'success', worker_urls: {} });
});

test('--dp-aware: one rank, or an engine that tells nothing, is one worker without a number', async (t) => {
  const engines = [await startEngine(t, { control: sglang(1) }), await startEngine(t)];
  const workerUrls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, { ...options, dpAware: true, workerUrls });
  await until('both serve', () => router.fleet.eligible.length === 2);
  assert.deepEqual(
    router.fleet.workers.map(({ url }) => url),
    workerUrls,
  );
});

test('--dp-aware: vLLM tells its ranks by its metrics', async (t) => {
  const engine = await startEngine(t, { control: vllm });
  const loads = { engineLoadIntervalSecs: 0.05, policy: 'least_inflight' };
  const router = await startTestRouter(t, { ...options, ...loads, dpAware: true, workerUrls: [engine.url] });
  await until('its ranks serve', () => router.fleet.eligible.length === 3);
  await until('the load of each is known', () => router.fleet.workers.every(({ foreignLoad }) => foreignLoad > 0));
  assert.deepEqual(
    router.fleet.workers.map(({ rank, foreignLoad }) => [rank, foreignLoad]),
    [
      [0, 4],
      [1, 5],
      [2, 6],
    ],
  );
});

test('a rank has its own KV cache, and a worker without a rank those of all ranks', async (t) => {
  const withCache =
    (labels: string): ControlAnswer =>
    (path) => {
      const rest = vllm(path) ?? '';
      const config = `vllm:cache_config_info{block_size="16",engine="3",hash_block_size="4",${labels}} 1.0\n`;
      return path === '/metrics' ? answer(200, config + rest.slice(rest.indexOf('\r\n\r\n') + 4)) : rest;
    };
  const told: ControlAnswer = (path) =>
    path === '/server_info' ? json({ dp_size: 3, max_total_num_tokens: 1_600 }) : sglang(3)(path);
  const kinds: readonly (readonly [ControlAnswer, number])[] = [
    [told, 1_600],
    [withCache('kv_cache_size_tokens="None",num_gpu_blocks="300"'), 1_600],
    // Two groups of layers: of each two blocks.
    [withCache('kv_cache_size_tokens="800",num_gpu_blocks="300"'), 800],
  ];
  for (const [control, tokens] of kinds) {
    const engine = await startEngine(t, { control });
    const plain = await startTestRouter(t, { ...options, workerUrls: [engine.url] });
    await until('it is known', () => plain.fleet.workers[0]!.engine !== null);
    assert.equal(plain.fleet.workers[0]!.kvTokens, 3 * tokens);
    const aware = await startTestRouter(t, { ...options, dpAware: true, workerUrls: [engine.url] });
    await until('its ranks serve', () => aware.fleet.eligible.length === 3);
    assert.deepEqual(
      aware.fleet.workers.map(({ kvTokens }) => kvTokens),
      [tokens, tokens, tokens],
    );
  }
});

test('--dp-aware: a restarted engine may have other ranks, and each has its own memory', async (t) => {
  const told = (dpSize: number, kvTokens: number): ControlAnswer => {
    const rest = sglang(dpSize);
    return (path) => (path === '/server_info' ? json({ dp_size: dpSize, max_total_num_tokens: kvTokens }) : rest(path));
  };
  let engine = await startEngine(t, { control: told(3, 1_000) });
  const explicit = `${engine.url}@7`;
  const router = await startTestRouter(t, { ...options, dpAware: true, workerUrls: [engine.url, explicit] });
  const ranks = () =>
    router.fleet.eligible.map(({ rank, kvTokens }) => [rank, kvTokens]).toSorted(([a], [b]) => a! - b!);
  const show = async (what: string, ...expected: unknown[]) =>
    until(what, () => JSON.stringify(ranks()) === JSON.stringify(expected));
  await show('three ranks', [0, 1_000], [1, 1_000], [2, 1_000], [7, 1_000]);
  const { id } = router.fleet.get(`${engine.url}@0`)!;
  const restart = async (control: ControlAnswer): Promise<void> => {
    engine.kill();
    await until('it is gone', () => router.fleet.eligible.length === 0);
    engine = await startInPlaceOf(t, engine, { control });
  };
  await restart(told(2, 500));
  await show('two ranks', [0, 500], [1, 500], [7, 500]);
  await restart(told(1, 400));
  await show('one worker without a rank', [null, 400], [7, 400]);
  await restart(vllm);
  await show('three ranks again', [0, null], [1, null], [2, null], [7, null]);
  assert.deepEqual(new Set(router.fleet.workers.map((worker) => worker.engine)), new Set(['vllm']));
  assert.equal(router.fleet.get(`${engine.url}@0`)!.id, id);
});

test('--dp-aware: a known engine of a pair takes another bootstrap port, and no other role', async (t) => {
  const engines = [await startEngine(t, { control: vllm }), await startEngine(t, { control: vllm })];
  const [prefill, decode] = engines.map(({ url }) => url);
  const pairs = { vllmPdDisaggregation: true, kvConnector: 'mooncake', dpAware: true };
  const router = await startTestRouter(t, { ...options, ...pairs, prefill: [prefill, '8998'], decode: [decode] });
  await until('the ranks of both serve', () => router.fleet.eligible.length === 6);
  const shown = () =>
    router.fleet.workers
      .map(({ role, bootstrapPort }) => `${role} ${bootstrapPort}`)
      .toSorted()
      .join(', ');
  const expected = (port: number) =>
    [...Array<string>(3).fill('decode null'), ...Array<string>(3).fill(`prefill ${port}`)].join(', ');
  assert.equal(shown(), expected(8998));
  await router.reload(() => ({ ...router.config, prefill: [prefill!, '8999'] }));
  assert.equal(shown(), expected(8999));
  const add = (body: object) => send(t, router.url, request('POST', '/workers', JSON.stringify(body)));
  assert.equal((await add({ url: prefill, worker_type: 'prefill', bootstrap_port: 9000 })).status, 202);
  assert.equal(shown(), expected(9000));
  const { status, text } = await add({ url: prefill, worker_type: 'decode' });
  assert.equal(status, 400);
  assert.match(text, /in the fleet as prefill: remove it first/);
  assert.equal(shown(), expected(9000));
});

/** SGLang with two ranks, which answers questions when `gate` is open and generations with its URL and the rank. */
async function startRanked(t: TestContext): Promise<{ url: string; gate: Promise<void> }> {
  const models = json({ object: 'list', data: [{ id: 'm', object: 'model' }] });
  const answers = (path: string) => (path === '/v1/models' ? models : sglang(2)(path));
  const server = createServer((asked, response) => {
    asked.resume();
    if (asked.method === 'GET') void engine.gate.then(() => asked.socket.end(answers(asked.url!) ?? ''));
    else response.end(`${engine.url}@${String(asked.headers['x-data-parallel-rank'])}`);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  const engine = { url: `http://127.0.0.1:${port}`, gate: Promise.resolve() };
  return engine;
}

for (const policy of ['sticky_least_loaded', 'rollout']) {
  test(`--dp-aware, ${policy}: after a restart of the router sessions wait for the ranks of their engine, for a time`, async (t) => {
    const engines = [await startRanked(t), await startRanked(t)] as const;
    const dataDir = temporaryFolder(t);
    const workerUrls = engines.map(({ url }) => url);
    const start = (healthCheckTimeoutSecs: number) =>
      startTestRouter(t, { ...options, policy, dpAware: true, dataDir, workerUrls, healthCheckTimeoutSecs });
    const ask = async (router: Router, session: string) =>
      (
        await send(
          t,
          router.url,
          request('POST', '/v1/completions', '{"model":"m","prompt":"x"}', [`x-session-id: ${session}`]),
        )
      ).text;
    const sessions = Array.from({ length: 16 }, (_, i) => `s${i}`);
    const first = await start(60);
    await until('all ranks serve', () => first.fleet.eligible.length === 4);
    const homes = await Promise.all(sessions.map((session) => ask(first, session)));
    assert.ok(homes.some((home) => home.startsWith(engines[1].url)));
    await first.close();
    const opened = Promise.withResolvers<void>();
    engines[1].gate = opened.promise;
    const second = await start(60);
    await until('one engine serves', () => second.fleet.eligible.length === 2);
    let served = 0;
    const again = sessions.map((session) => ask(second, session).finally(() => served++));
    await until('all are in', () => second.pipeline.inFlight.size + served === sessions.length);
    opened.resolve();
    assert.deepEqual(await Promise.all(again), homes);
    await second.close();
    engines[1].gate = new Promise(() => {});
    const third = await start(1);
    await until('one engine serves', () => third.fleet.eligible.length === 2);
    assert.ok((await ask(third, 'new')).startsWith(engines[0].url));
  });
}

test('--dp-aware needs health checks', () => {
  assert.throws(
    () => loadConfig({ dpAware: true, disableHealthCheck: true }, {}, undefined),
    /--dp-aware asks engines with their first health check/,
  );
});

test('--intra-node-data-parallel-size and ranges of ranks ask no engine; a range may begin at any rank', async (t) => {
  const engines = [await startEngine(t), await startEngine(t)];
  const [first, second] = engines.map(({ url }) => url);
  const workerUrls = [first, `${second}@4-5`];
  const router = await startTestRouter(t, { intraNodeDataParallelSize: 2, workerUrls });
  const urls = (): string[] => router.fleet.workers.map(({ url }) => url);
  assert.deepEqual(urls(), [`${first}@0`, `${first}@1`, `${second}@4`, `${second}@5`]);
  await router.reload(() => ({ ...router.config, workerUrls: [`${second}@5-6`] }));
  assert.deepEqual(urls(), [`${second}@5`, `${second}@6`]);
});

test('health is asked once for all ranks of an engine, and they fall and rise together', async (t) => {
  let status = 200;
  const engine = await startEngine(t, {
    control: (path) => (path === '/health' ? answer(status, '') : answer(404, '')),
  });
  const router = await startTestRouter(t, { ...options, healthFailureThreshold: 1, workerUrls: [`${engine.url}@0-7`] });
  const healthy = (): number => router.fleet.workers.filter(({ isHealthy }) => isHealthy).length;
  await until('all are proven', () => healthy() === 8);
  assert.ok(engine.questions.filter((path) => path === '/health').length < 8);
  status = 500;
  await until('all are in quarantine', () => router.fleet.eligible.length === 0);
  status = 200;
  await until('all serve again', () => router.fleet.eligible.length === 8);
  // One more rank of an engine that is known to be well is proven by the next answer.
  await send(t, router.url, request('POST', `/add_worker?url=${engine.url}@8`));
  await until('the new one too', () => healthy() === 9);
});

test('the load of SGLang is read once for all its ranks, and each gets its own', async (t) => {
  const engine = await startEngine(t, { control: sglang(2, [5, 2]) });
  const loads = { engineLoadIntervalSecs: 0.05, policy: 'power_of_two' };
  const router = await startTestRouter(t, { ...options, ...loads, workerUrls: [`${engine.url}@0-1`] });
  await until('it is known', () => router.fleet.workers.every(({ foreignLoad }) => foreignLoad > 0));
  assert.deepEqual(
    router.fleet.workers.map(({ foreignLoad }) => foreignLoad),
    [6, 3],
  );
  const client = await connectClient(t, router.url);
  client.write(request('POST', '/v1/completions', '{"prompt":"x"}'));
  const asked = await engine.next();
  assert.equal(asked.head.get('x-data-parallel-rank'), '1', 'the one with less');
  assert.equal((await asked.payload()).toString(), '{"prompt":"x"}', "OpenAI's paths read the header");
});

test('a body on its way to a rank of SGLang stays whole at any length, chunked too', async (t) => {
  const engine = await startEngine(t, { control: sglang(2) });
  const router = await startTestRouter(t, { ...options, workerUrls: [`${engine.url}@1`] });
  await until('its kind is known', () => router.fleet.workers[0]!.engine === 'sglang');
  const text = 'x'.repeat(300_000);
  const client = await connectClient(t, router.url);
  client.write(request('POST', '/generate', `{"text":"${text}"}`));
  const first = await engine.next();
  assert.equal((await first.payload()).toString(), `{"data_parallel_rank":1,"text":"${text}"}`);
  first.answer('{}');
  await client.answer();
  client.write('POST /generate HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n');
  client.write('9\r\n"text":1}\r\n0\r\n\r\n');
  const second = await engine.next();
  assert.equal((await second.payload()).toString(), '{"data_parallel_rank":1,"text":1}');
  assert.equal(second.head.get('transfer-encoding'), undefined);
  // What the client says itself, it knows better.
  second.answer('{}');
  await client.answer();
  client.write(request('POST', '/generate', '{"text":"x"}', ['X-Data-Parallel-Rank: 0']));
  assert.equal((await (await engine.next()).payload()).toString(), '{"text":"x"}');
});
