import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { type Peer, readAlias } from '../../src/config/alias/alias.ts';
import { sglang } from '../../src/config/alias/sglang.ts';
import { slime } from '../../src/config/alias/slime.ts';
import { vllm } from '../../src/config/alias/vllm.ts';
import { inFull } from '../../src/cli/alias.ts';
import { loadConfig } from '../../src/config/load.ts';
import { startEngine } from '../harness/engine.ts';
import { turnout } from './turnout.ts';

const anyPorts = ['--port', '0', '--prometheus-port', '0'];
const listening = /listening on (http:\/\/127\.0\.0\.1:\d+)/;

const bare = (peer: Peer) => loadConfig({}, {}, undefined, readAlias(peer, new Map()).base);

test('launch_router: the documented defaults', () => {
  const c = bare(sglang);
  assert.deepEqual(
    [c.host, c.port, c.policy, c.maxConcurrentRequests, c.queueSize, c.requestTimeoutSecs, c.maxPayloadSize],
    ['127.0.0.1', 30_000, 'cache_aware', 0, 100, 600, 268_435_456],
  );
  assert.deepEqual([c.cacheThreshold, c.balanceAbsThreshold, c.balanceRelThreshold], [0.5, 32, 1.0001]);
  assert.deepEqual([c.retryMaxRetries, c.retryInitialBackoffMs, c.retryMaxBackoffMs], [3, 100, 10_000]);
  assert.deepEqual([c.retryBackoffMultiplier, c.retryJitterFactor], [2, 0.1]);
  assert.deepEqual([c.cbFailureThreshold, c.cbSuccessThreshold], [5, 2]);
  assert.deepEqual([c.cbTimeoutDurationSecs, c.cbWindowDurationSecs, c.maxEjectedPercent], [30, 60, 100]);
  assert.deepEqual([c.workerStartupTimeoutSecs, c.workerStartupCheckInterval], [300, 10]);
  assert.deepEqual([c.prometheusPort, c.prometheusHost, c.logLevel], [29_000, '127.0.0.1', 'info']);
  assert.deepEqual([c.workerApi, c.sendApiKeyToWorkers, c.corsAllowedOrigins], ['sglang', true, ['*']]);
});

test('vllm-router: the documented defaults, and its own of today', () => {
  const c = bare(vllm);
  assert.deepEqual([c.host, c.port, c.policy, c.keyOrder], ['127.0.0.1', 30_000, 'cache_aware', 'vllm-router']);
  assert.deepEqual([c.cacheThreshold, c.balanceAbsThreshold, c.balanceRelThreshold], [0.5, 32, 1.1]);
  assert.deepEqual([c.retryMaxRetries, c.retryInitialBackoffMs, c.retryMaxBackoffMs], [5, 50, 30_000]);
  assert.deepEqual([c.retryBackoffMultiplier, c.retryJitterFactor], [1.5, 0.2]);
  assert.deepEqual([c.cbFailureThreshold, c.cbSuccessThreshold], [10, 3]);
  assert.deepEqual([c.cbTimeoutDurationSecs, c.cbWindowDurationSecs, c.maxEjectedPercent], [60, 120, 100]);
  assert.deepEqual([c.maxConcurrentRequests, c.requestTimeoutSecs, c.maxPayloadSize], [0, 1_800, 536_870_912]);
  assert.deepEqual([c.workerStartupTimeoutSecs, c.healthCheckIntervalSecs], [600, 60]);
  assert.deepEqual([c.workerApi, c.corsAllowedOrigins], ['vllm', ['*']]);
});

test('slime-router: least in flight, no time limit', () => {
  const c = bare(slime);
  assert.deepEqual([c.policy, c.requestTimeoutSecs, c.maxConcurrentRequests], ['least_inflight', 0, 0]);
  assert.deepEqual([c.healthFailureThreshold, c.healthCheckIntervalSecs, c.workerApi], [3, 30, 'slime']);
});

test('lists by spaces, by commas, in several flags; values after =; our own options beside theirs', async (t) => {
  const engines = await Promise.all([1, 2, 3, 4, 5].map(() => startEngine(t)));
  const [a, b, c, d, e] = engines.map(({ url }) => url);
  const workers = ['--worker-urls', `${a}`, `${b}`, '--worker-urls', `${c},${d}`, `--worker-urls=${e}`];
  const others = ['--policy=round_robin', '--disable-retries', '--session-ttl-secs', '60'];
  const run = turnout(t, ['launch-router', ...workers, ...others, '--port=0', '--prometheus-port', '0']);
  const url = (await run.says(listening))[1]!;
  assert.match(run.output(), /"policy":"round_robin","workers":5/);
  const { urls } = (await (await fetch(`${url}/list_workers`)).json()) as { urls: string[] };
  assert.deepEqual(urls, [a, b, c, d, e]);
  assert.equal((await fetch(`${url}/liveness`)).headers.get('access-control-allow-origin'), '*');
});

test('flags win over the environment, that over the file, that over the peer’s defaults', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-alias-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'turnout.yaml');
  writeFileSync(file, 'policy: random\nprometheus-port: 0\nworker-api: slime\n');
  const run = turnout(t, ['vllm-router', '--config', file, '--port', '0'], { TURNOUT_POLICY: 'power_of_two' });
  const url = (await run.says(listening))[1]!;
  assert.match(run.output(), /"policy":"power_of_two"/);
  assert.equal(
    ((await (await fetch(`${url}/health`)).json()) as { status: string }).status,
    'ok',
    'as SlimeRouter says it',
  );
});

test('each flag without effect is named in one line, and the router starts', async (t) => {
  const flags = ['--tokenizer-path', 'tok', '--backend', 'trtllm', '--eviction-interval-secs', '60'];
  const run = turnout(t, ['launch_router', ...anyPorts, ...flags, '--jwt-role-mapping']);
  assert.equal(await run.ended, 2);
  assert.match(run.output(), /--jwt-role-mapping: access is controlled by keys only/);
  const again = turnout(t, ['launch_router', ...anyPorts, ...flags]);
  await again.says(listening);
  const lines = again
    .output()
    .split('\n')
    .filter((line) => line.startsWith('turnout: ') && line.includes('has no effect'));
  assert.match(again.output(), /"msg":"--tokenizer-path has no effect without a plugin that captures/);
  assert.deepEqual(
    lines.map((line) => line.split(' ').slice(0, 2).join(' ')),
    ['turnout: --eviction-interval-secs', 'turnout: --backend'],
  );
});

test('an unknown flag names the nearest one of that router', async (t) => {
  for (const [verb, wrong, right] of [
    ['launch_router', '--tokenizer-paht', '--tokenizer-path'],
    ['vllm-router', '--kv-conector', '--kv-connector'],
    ['slime-router', '--slime-router-timeuot', '--slime-router-timeout'],
  ] as const) {
    for (const words of [[wrong, 'x'], [`${wrong}=x`]]) {
      const run = turnout(t, [verb, ...words]);
      assert.notEqual(await run.ended, 0);
      assert.match(run.output(), new RegExp(`unknown option '${wrong}'[\\s\\S]*${right}`));
    }
  }
});

test('a beginning that is no other flag’s will do, as in the other routers', async (t) => {
  for (const [said, meant] of [
    ['vllm-router --worker-u http://a:1 --pol=random', 'vllm-router --worker-urls http://a:1 --policy=random'],
    ['vllm-router --prefill x --prometheus', 'vllm-router --prefill x --prometheus'],
    ['vllm-router --session-ttl-secs=5 --config=f', 'vllm-router --session-ttl-secs=5 --config=f'],
    ['serve --worker-u x --por=1', 'serve --worker-u x --por=1'],
  ] as const) {
    assert.equal(inFull(said.split(' ')).join(' '), meant);
  }
  const engine = await startEngine(t);
  const run = turnout(t, ['vllm-router', '--worker-u', engine.url, '--pol', 'random', ...anyPorts]);
  await run.says(listening);
  assert.match(run.output(), /"policy":"random","workers":1/);
});

test('a wrong value is named by its flag', async (t) => {
  const run = turnout(t, ['vllm-router', '--policy', 'best', '--retry-jitter-factor', '7']);
  assert.equal(await run.ended, 2);
  assert.match(run.output(), /--policy: .*round_robin/);
  assert.match(run.output(), /--retry-jitter-factor: /);
});
