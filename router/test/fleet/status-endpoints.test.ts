import { deepEqual, equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { answer, deadUrl, startEngine } from '../harness/engine.ts';
import { HELLO, startScene, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

test('/liveness and /health answer whatever the fleet', async (t) => {
  const router = await startTestRouter(t);
  const get = async (path: string) => {
    const { status, text } = await send(t, router.url, request('GET', path));
    return [status, text];
  };
  deepEqual(await get('/liveness'), [200, 'OK']);
  deepEqual(await get('/health'), [200, '{"status":"ok","healthy_workers":0,"total_workers":0}']);
});

test('/readiness: 503 without a healthy worker, 200 with one', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, { disableHealthCheck: false });
  const empty = await send(t, router.url, request('GET', '/readiness'));
  equal(empty.status, 503);
  deepEqual(JSON.parse(empty.text), {
    status: 'not ready',
    reason: 'insufficient healthy workers',
    healthy_workers: 0,
    total_workers: 0,
  });
  router.fleet.add(engine.url);
  await until('it is healthy', () => router.fleet.workers[0]!.isHealthy);
  const ready = await send(t, router.url, request('GET', '/readiness'));
  deepEqual([ready.status, JSON.parse(ready.text)], [200, { status: 'ready', healthy_workers: 1, total_workers: 1 }]);
});

/** What engines say of their load, by the way that they are asked, and what is shown of it. */
const loadAnswers: readonly [what: string, answers: Record<string, string>, shown: number][] = [
  [
    'tokens of /v1/loads of SGLang',
    {
      '/model_info': '{"model_path":"m"}',
      '/v1/loads': '{"loads":[{"dp_rank":0,"num_total_tokens":70},{"dp_rank":1,"num_total_tokens":7}]}',
    },
    77,
  ],
  [
    'tokens of /get_load of older releases',
    { '/get_model_info': '{"model_path":"m"}', '/get_load': '[{"dp_rank":0,"num_reqs":2,"num_tokens":41}]' },
    41,
  ],
  [
    'requests in the metrics of vLLM',
    { '/version': '{"version":"0"}', '/metrics': 'vllm:num_requests_running 3.0\nvllm:num_requests_waiting 2.0\n' },
    5,
  ],
  ['/load of vLLM without metrics', { '/version': '{"version":"0"}', '/load': '{"server_load":4}' }, 4],
  ['-1 for an engine that does not say', {}, -1],
  ['-1 for a list that is none of loads', { '/model_info': '{"model_path":"m"}', '/v1/loads': '{"loads":[null]}' }, -1],
];

test("/get_loads gives each engine's own figure, -1 where it is unknown", async (t) => {
  const engines = await Promise.all(
    loadAnswers.map(([, answers]) =>
      startEngine(t, {
        control: (target) => {
          const path = target.split('?')[0]!;
          return path === '/health' ? answer(200, '') : path in answers ? answer(200, answers[path]!) : answer(404, '');
        },
      }),
    ),
  );
  const urls = engines.map(({ url }) => url);
  const dead = await deadUrl();
  const router = await startTestRouter(t, { disableHealthCheck: false, workerUrls: [...urls, dead] });
  await until('all are known', () => router.fleet.workers.every(({ engine, url }) => engine !== null || url === dead));
  const got = JSON.parse((await send(t, router.url, request('GET', '/get_loads'))).text) as unknown;
  const workers = loadAnswers.map(([, , load], i) => ({ worker: urls[i], load }));
  deepEqual(got, { workers: [...workers, { worker: dead, load: -1 }] });
});

test('/metrics on both ports tells what happened', async (t) => {
  const { router, engine, exchange } = await startScene(t);
  await exchange(HELLO, answer(200, ''));
  await exchange(HELLO, answer(404, ''));
  const own = await send(t, router.url, request('GET', '/metrics'));
  match(own.get('content-type')!, /^text\/plain/);
  const other = await fetch(router.metricsUrl);
  match(other.headers.get('content-type')!, /^text\/plain/);
  for (const text of [own.text, await other.text()]) {
    match(text, /^turnout_requests_total\{outcome="complete"\} 2$/m);
    match(text, /^turnout_requests_in_flight 0$/m);
    match(text, new RegExp(`^turnout_worker_responses_total\\{worker="${engine.url}",status="2xx"\\} 1$`, 'm'));
    match(text, new RegExp(`^turnout_worker_responses_total\\{worker="${engine.url}",status="4xx"\\} 1$`, 'm'));
    match(text, new RegExp(`^turnout_worker_in_flight\\{worker="${engine.url}"\\} 0$`, 'm'));
    match(text, /^# HELP turnout_request_duration_seconds .+$/m);
    match(text, /^turnout_request_duration_seconds_bucket\{le="\+Inf"\} 2$/m);
  }
});

test('the router\u2019s own endpoints answer while the fleet is full', async (t) => {
  const { router, ask } = await startScene(t, { maxConcurrentRequests: 1 });
  await ask(HELLO);
  for (const path of ['/liveness', '/metrics', '/workers', '/get_loads', '/list_workers']) {
    equal((await send(t, router.url, request('GET', path))).status, 200);
  }
});

test('requests for the router\u2019s own endpoints are no exchanges in the metrics', async (t) => {
  const router = await startTestRouter(t);
  for (let i = 0; i < 3; i++) await send(t, router.url, request('GET', '/liveness'));
  const client = await connectClient(t, router.url);
  client.write(request('POST', '/add_worker', '{"url":"http://127.0.0.1:1"}').slice(0, -5));
  const isSeen = async (count: number): Promise<boolean> =>
    (await (await fetch(router.metricsUrl)).text()).includes(`turnout_client_connections ${count}\n`);
  await until('the client is connected', () => isSeen(1));
  client.reset();
  await until('the client is gone', () => isSeen(0));
  const text = await (await fetch(router.metricsUrl)).text();
  for (const outcome of ['complete', 'refused', 'cut', 'client_left']) {
    match(text, new RegExp(`^turnout_requests_total\\{outcome="${outcome}"\\} 0$`, 'm'));
  }
});

test('/engine_metrics: metrics of all engines that answer on one page, with their URLs; 503 if none does', async (t) => {
  const engines = await Promise.all([startEngine(t), startEngine(t), startEngine(t)]);
  for (const [i, engine] of engines.entries()) {
    engine.control = (path) =>
      path === '/metrics' && i < 2 ? answer(200, `# TYPE vllm:x gauge\nvllm:x ${i}\n`) : answer(404, '');
  }
  const [a, b, silent] = engines.map(({ url }) => url);
  const router = await startTestRouter(t, { workerUrls: [a!, b!, silent!] });
  const { status, text, get } = await send(t, router.url, request('GET', '/engine_metrics'));
  equal(status, 200);
  match(get('content-type')!, /^text\/plain; version=0\.0\.4/);
  equal(text, `# TYPE vllm:x gauge\nvllm:x{worker_addr="${a}"} 0\nvllm:x{worker_addr="${b}"} 1\n`);
  const without = await startTestRouter(t, { workerUrls: [silent!] });
  const none = await send(t, without.url, request('GET', '/engine_metrics'));
  equal(none.status, 503);
  match(none.text, /^No engine answers GET \/metrics: SGLang needs --enable-metrics/);
});
