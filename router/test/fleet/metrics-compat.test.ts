import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { readAlias } from '../../src/config/alias/alias.ts';
import { sglang } from '../../src/config/alias/sglang.ts';
import { vllm } from '../../src/config/alias/vllm.ts';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { request, send } from '../harness/client.ts';
import { type EngineRequest, answer, deadUrl, startEngine } from '../harness/engine.ts';
import { stoppedClock } from '../harness/fake-time.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { startPairs } from '../pairs/scene.ts';

/** What the page has of the names and labels that these routers serve; NEAR and DEAD are the URLs of the workers. */
const expected = {
  // vllm-router 0.1.17.
  vllm: `vllm_router_requests_total{route="/v1/completions"} 3
vllm_router_requests_total{route="/v1/chat/completions"} 1
vllm_router_request_errors_total{route="/v1/completions",error_type="http_400"} 1
vllm_router_request_duration_seconds_count{route="/v1/chat/completions"} 1
vllm_router_policy_decisions_total{policy="round_robin",worker="NEAR"} 4
vllm_router_processed_requests_total{worker="NEAR"} 4
vllm_router_cb_outcomes_total{worker="NEAR",outcome="success"} 4
vllm_router_cb_outcomes_total{worker="DEAD",outcome="failure"} 3
vllm_router_retries_total{route="/v1/completions"} 2
vllm_router_cb_state{worker="DEAD"} 0
vllm_router_worker_health{worker="NEAR"} 1
vllm_router_active_workers 2
vllm_router_running_requests{worker="NEAR"} 0
vllm_router_generate_duration_seconds_bucket{le="+Inf"} 4`,
  // sglang-router 0.3.2.
  sglang: `smg_http_requests_total{method="POST",path="/v1/completions"} 3
smg_http_responses_total{status_code="200",error_code=""} 3
smg_http_responses_total{status_code="400",error_code=""} 1
smg_http_request_duration_seconds_count{method="POST",path="/v1/chat/completions"} 1
smg_router_requests_total{router_type="http",backend_type="regular",connection_mode="http",endpoint="completions",model="sim",streaming="false"} 3
smg_router_requests_total{router_type="http",backend_type="regular",connection_mode="http",endpoint="chat",model="sim",streaming="true"} 1
smg_router_request_duration_seconds_count{router_type="http",backend_type="regular",connection_mode="http",endpoint="chat"} 1
smg_router_upstream_responses_total{router_type="http",status_code="200",error_code=""} 3
smg_router_upstream_responses_total{router_type="http",status_code="500",error_code="call_upstream_request_error"} 3
smg_worker_selection_total{worker_type="regular",connection_mode="http",policy="round_robin",model="sim"} 7
smg_worker_pool_size{worker_type="regular",connection_mode="http"} 2
smg_worker_health{worker="NEAR"} 1
smg_worker_cb_state{worker="NEAR"} 0
smg_worker_cb_consecutive_failures{worker="DEAD"} 3
smg_worker_cb_consecutive_successes{worker="NEAR"} 4
smg_worker_retries_total{worker_type="regular",endpoint="completions"} 2
smg_worker_retry_backoff_seconds_count{attempt="1"} 3
smg_worker_retry_backoff_seconds_sum{attempt="1"} 0
smg_http_rate_limit_total{result="rejected"} 0`,
} as const;

for (const [peer, samples] of Object.entries(expected)) {
  test(`--metrics-compat ${peer}: the names and labels of its router, beside our own`, async (t) => {
    const engine = await startSimEngine({ kind: 'vllm', timeScale: 0 });
    t.after(() => engine.close());
    const dead = await deadUrl();
    const options = { workerUrls: [engine.url, dead], policy: 'round_robin', retryMaxRetries: 3, metricsCompat: peer };
    const router = await startTestRouter(t, options);
    // Without health checks, which would leave out the dead worker, nothing asks for the models.
    for (const worker of router.fleet.workers) worker.models = new Map([['sim', '{}']]);
    const post = (path: string, body: object) => send(t, router.url, request('POST', path, JSON.stringify(body)));
    const prompt = { model: 'sim', prompt: 'a', max_tokens: 2 };
    const chat = { model: 'sim', stream: true, max_tokens: 2, messages: [{ role: 'user', content: 'a' }] };
    equal((await post('/v1/completions', prompt)).status, 200);
    equal((await post('/v1/completions', prompt)).status, 200);
    equal((await post('/v1/chat/completions', chat)).status, 200);
    equal((await post('/v1/completions', { prompt: 5 })).status, 400);
    await until('all have ended', () => router.fleet.inFlight.every((count) => count === 0));
    const page = await (await fetch(`${router.url}/metrics`)).text();
    const lines = new Set(page.replaceAll(engine.url, 'NEAR').replaceAll(dead, 'DEAD').split('\n'));
    deepEqual(
      samples.split('\n').filter((sample) => !lines.has(sample)),
      [],
      page
        .split('\n')
        .filter((line) => /^(vllm|smg)/.test(line) && !line.includes('_bucket'))
        .join('\n'),
    );
    ok(page.includes('turnout_requests_total'));
  });
}

test('the commands of the other routers serve the names of their metrics, other starts do not', async (t) => {
  for (const peer of [sglang, vllm])
    equal(readAlias(peer, new Map()).base.metricsCompat, peer === vllm ? 'vllm' : 'sglang');
  const router = await startTestRouter(t);
  const page = await (await fetch(`${router.url}/metrics`)).text();
  equal(/^(vllm_router|smg)_/m.test(page), false);
});

test('pairs have the names of vllm-router', async (t) => {
  const { world, router } = await startPairs(t, [2, 1], { metricsCompat: 'vllm' });
  const [bad, good] = world.prefill;
  bad!.instead = () => 'reset';
  for (let i = 0; i < 2; i++) {
    equal((await send(t, router.url, request('POST', '/generate', '{"text":"a"}'))).status, 200);
  }
  await untilIdle(router);
  const lines = (await (await fetch(`${router.url}/metrics`)).text()).split('\n');
  for (const sample of [
    'pd_requests_total{route="/generate"} 2',
    'pd_request_duration_seconds_count{route="/generate"} 2',
    `pd_prefill_requests_total{worker="${good!.engine.url}"} 2`,
    `pd_decode_requests_total{worker="${world.decode[0]!.engine.url}"} 2`,
    `pd_prefill_errors_total{worker="${bad!.engine.url}"} 2`,
  ])
    ok(lines.includes(`vllm_router_${sample}`), lines.filter((line) => line.includes('_pd_')).join('\n'));
});

test('a request that no engine answered is one choice for each attempt, and no response of an engine', async (t) => {
  const router = await startTestRouter(t, {
    workerUrls: [await deadUrl()],
    metricsCompat: 'sglang',
    retryMaxRetries: 1,
  });
  equal((await send(t, router.url, request('POST', '/generate', '{"text":"a"}'))).status, 503);
  await untilIdle(router);
  const lines = (await (await fetch(`${router.url}/metrics`)).text()).split('\n');
  const of = (name: string): string[] =>
    lines.filter((line) => line.startsWith(`smg_${name}{`)).map((line) => line.split(' ').at(-1)!);
  deepEqual(of('worker_selection_total'), of('router_upstream_responses_total'));
  deepEqual(of('router_requests_total'), []);
  ok(!lines.some((line) => line.startsWith('smg_router_upstream_responses_total') && line.includes('"503"')));
});

test('a truncated response is a failure of its worker, and no success less', async (t) => {
  let requests = 0;
  const engine = await startEngine(t, {
    onRequest: (asked) => {
      if (++requests < 3) return asked.answer('{}');
      asked.connection.write('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{');
      asked.connection.end();
    },
  });
  const router = await startTestRouter(t, { workerUrls: [engine.url], metricsCompat: 'vllm' });
  for (let i = 0; i < 4; i++)
    await fetch(`${router.url}/generate`, { method: 'POST', body: '{}' }).then(
      (response) => response.text().catch(() => ''),
      () => '',
    );
  await untilIdle(router);
  const page = await (await fetch(`${router.url}/metrics`)).text();
  match(page, /^vllm_router_cb_outcomes_total\{.*outcome="success"\} 2$/m);
  match(page, /^vllm_router_cb_outcomes_total\{.*outcome="failure"\} 2$/m);
});

test('what the circuit breaker does not count is no outcome: a closed idle connection, a 500 to another path', async (t) => {
  stoppedClock(t);
  let requests = 0;
  const engine = await startEngine(t, {
    onRequest: (asked) => {
      if (asked.target === '/other') asked.connection.write(answer(500, '{}'));
      else if (++requests === 2) asked.connection.reset();
      else asked.answer('{}');
    },
  });
  const router = await startTestRouter(t, { workerUrls: [engine.url], metricsCompat: 'sglang' });
  for (const path of ['/generate', '/generate', '/other']) {
    await (await fetch(router.url + path, { method: 'POST', body: '{}' })).text();
    await untilIdle(router);
  }
  const page = await (await fetch(`${router.url}/metrics`)).text();
  match(page, /^turnout_retries_total\{failure="stale"\} 1$/m);
  match(page, /^smg_worker_cb_outcomes_total\{.*outcome="success"\} 3$/m);
  equal(/^smg_worker_cb_outcomes_total\{.*outcome="failure"\}/m.test(page), false);
  match(page, /^smg_worker_cb_consecutive_successes\{.*\} 3$/m);
});

test('a request whose last attempt an engine failed has exhausted its retries', async (t) => {
  const busy = { onRequest: (asked: EngineRequest) => asked.connection.write(answer(503, 'busy')) };
  const workerUrls = [(await startEngine(t, busy)).url, (await startEngine(t, busy)).url];
  const router = await startTestRouter(t, { workerUrls, retryMaxRetries: 1, metricsCompat: 'sglang' });
  equal((await send(t, router.url, request('POST', '/generate', '{"text":"a"}'))).status, 503);
  await untilIdle(router);
  const page = await (await fetch(`${router.url}/metrics`)).text();
  match(page, /^smg_worker_retries_exhausted_total\{worker_type="regular",endpoint="generate"\} 1$/m);
});

test('--metrics-compat sglang: how long a request waits before the only worker is tried again', async (t) => {
  let requests = 0;
  const engine = await startEngine(t, {
    onRequest: (asked) => (++requests === 1 ? asked.connection.write(answer(503, '{}')) : asked.answer('{}')),
  });
  const router = await startTestRouter(t, { workerUrls: [engine.url], metricsCompat: 'sglang' });
  equal((await send(t, router.url, request('POST', '/v1/completions', '{"prompt":"a"}'))).status, 200);
  const page = await (await fetch(`${router.url}/metrics`)).text();
  const [, sum] = /^smg_worker_retry_backoff_seconds_sum\{attempt="1"\} (\S+)$/m.exec(page) ?? [];
  ok(Number(sum) > 0, page);
  match(page, /^smg_worker_retry_backoff_seconds_count\{attempt="1"\} 1$/m);
});
