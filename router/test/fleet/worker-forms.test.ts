import { deepEqual, equal, match } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

/** The bodies are those of vllm-router 0.1.17, and on `/workers` of sglang-router 0.3.2, but for what only this router tells. */

const A = 'http://127.0.0.1:10090';
const B = 'http://127.0.0.1:10091';
const idOf = encodeURIComponent;

/** Asks in few words: `POST /workers {"url":…}`. @returns status and body */
async function asker(t: TestContext, options: Parameters<typeof startTestRouter>[1]) {
  const router = await startTestRouter(t, options);
  const ask = async (method: string, target: string, body?: unknown): Promise<[number, string]> => {
    const got = await send(t, router.url, request(method, target, body === undefined ? '' : JSON.stringify(body)));
    return [got.status, got.text];
  };
  return { router, ask };
}

for (const workerApi of ['vllm', 'sglang']) {
  test(`${workerApi}: add_worker and remove_worker answer in text`, async (t) => {
    const { router, ask } = await asker(t, { workerApi });
    deepEqual(await ask('POST', `/add_worker?url=${A}`), [200, `Successfully added worker: ${A}`]);
    deepEqual(await ask('POST', `/add_worker?url=${A}/`), [400, `Worker ${A} already exists`]);
    deepEqual(await ask('POST', '/add_worker', { url: B }), [200, `Successfully added worker: ${B}`]);
    deepEqual(await ask('GET', '/list_workers'), [200, `{"urls":["${A}","${B}"]}`]);
    deepEqual(await ask('POST', `/remove_worker?url=${A}`), [200, `Successfully removed worker: ${A}`]);
    deepEqual(await ask('POST', `/remove_worker?url=${A}`), [200, `Successfully removed worker: ${A}`]);
    for (const path of ['/add_worker', '/remove_worker']) {
      deepEqual(await ask('POST', path), [400, 'Failed to deserialize query string: missing field `url`']);
    }
    const [status, text] = await ask('POST', '/add_worker?url=ftp://x');
    equal(status, 400);
    match(text, /neither http nor https/);
    deepEqual(
      router.fleet.workers.map(({ url }) => url),
      [B],
    );
  });
}

test('vllm: workers by their URLs', async (t) => {
  const { router, ask } = await asker(t, { workerApi: 'vllm' });
  const body = { url: A, priority: 7, cost: 2.5, labels: { zone: 'b' }, bootstrap_port: 9000 };
  deepEqual(await ask('POST', '/workers', body), [200, `{"success":true,"message":"Successfully added worker: ${A}"}`]);
  const exists = `{"error":"Worker ${A} already exists","code":"ADD_WORKER_FAILED"}`;
  deepEqual(await ask('POST', '/workers', { url: A }), [400, exists]);
  for (const wrong of [
    {},
    { url: '' },
    { url: 'ftp://x' },
    { url: A, worker_type: 'king' },
    { url: B, bootstrap_port: 0 },
  ]) {
    const [status, text] = await ask('POST', '/workers', wrong);
    deepEqual([status, (JSON.parse(text) as { code: string }).code], [400, 'ADD_WORKER_FAILED']);
  }
  const [, list] = await ask('GET', '/workers');
  const start = `{"workers":[{"url":"${A}","model_id":"unknown","worker_type":"regular","is_healthy":true,"load":0,"connection_mode":"Http","priority":7,"cost":2.5,`;
  equal(list.slice(0, start.length), start);
  match(list, /"total":1,"stats":\{"prefill_count":0,"decode_count":0,"regular_count":1\}\}$/);
  equal(list.includes('"id"'), false);
  const [status, one] = await ask('GET', `/workers/${idOf(A)}`);
  equal(status, 200);
  match(one, new RegExp(`^\\{"url":"${A}","model_id":"unknown","is_healthy":true,`));
  equal((JSON.parse(one) as { bootstrap_port: number }).bootstrap_port, 9000);

  deepEqual(await ask('GET', `/workers/${idOf(B)}`), [
    404,
    `{"error":"Worker ${B} not found","code":"WORKER_NOT_FOUND"}`,
  ]);
  deepEqual(await ask('GET', '/workers/abc'), [404, '{"error":"Worker abc not found","code":"WORKER_NOT_FOUND"}']);
  equal((await ask('POST', `/workers/${idOf(A)}/breaker`, { state: 'open' }))[0], 200);
  deepEqual(router.fleet.workers[0]!.reasonNames(), ['breaker']);
  deepEqual(await ask('DELETE', `/workers/${idOf(A)}`), [
    200,
    `{"success":true,"message":"Worker ${A} removed successfully"}`,
  ]);
  for (const [id, named] of [
    [idOf(A), A],
    ['abc', 'abc'],
  ])
    deepEqual(await ask('DELETE', `/workers/${id}`), [
      404,
      `{"error":"Worker ${named} not found","code":"WORKER_NOT_FOUND"}`,
    ]);
  deepEqual(router.fleet.workers, []);
});

test('vllm: a data-parallel rank is a worker of its own URL', async (t) => {
  const { router, ask } = await asker(t, { workerApi: 'vllm', workerUrls: [`${A}@0`, `${A}@1`] });
  equal((await ask('GET', `/workers/${idOf(`${A}@1`)}`))[0], 200);
  equal((await ask('DELETE', `/workers/${idOf(`${A}@1`)}`))[0], 200);
  deepEqual(
    router.fleet.workers.map(({ url }) => url),
    [`${A}@0`],
  );
});

test('vllm: /health and /readiness tell of the engines', async (t) => {
  let isWell = false;
  const engine = await startEngine(t, { control: (path) => answer(path === '/health' && !isWell ? 500 : 200, '') });
  const health = { disableHealthCheck: false, healthCheckIntervalSecs: 0.02, healthSuccessThreshold: 1 };
  const { router, ask } = await asker(t, { workerApi: 'vllm', ...health });
  deepEqual(await ask('GET', '/health'), [200, 'All servers healthy']);
  const notReady = (count: number) =>
    `{"status":"not_ready","reason":"no healthy workers available","total_workers":${count}}`;
  deepEqual(await ask('GET', '/readiness'), [503, notReady(0)]);
  router.fleet.add(engine.url);
  deepEqual(await ask('GET', '/readiness'), [503, notReady(1)]);
  deepEqual(await ask('GET', '/health'), [503, `Unhealthy servers: ["${engine.url}"]`]);
  isWell = true;
  await until('it is healthy', () => router.fleet.workers[0]!.isHealthy);
  deepEqual(await ask('GET', '/readiness'), [200, '{"status":"ready","healthy_workers":1,"total_workers":1}']);
  deepEqual(await ask('GET', '/health'), [200, 'All servers healthy']);
});

test('sglang: a worker is accepted at once, and shows its job until its engine answers', async (t) => {
  let isUp = false;
  const engine = await startEngine(t, { control: (path) => answer(path === '/health' && !isUp ? 503 : 200, '') });
  const health = { disableHealthCheck: false, healthCheckIntervalSecs: 0.02, healthSuccessThreshold: 1 };
  const { router, ask } = await asker(t, { workerApi: 'sglang', ...health });
  const [status, text] = await ask('POST', '/workers', {
    url: engine.url,
    worker_type: 'regular',
    bootstrap_port: null,
  });
  equal(status, 202);
  const { location } = JSON.parse(text) as { location: string };
  const shown = async () => JSON.parse((await ask('GET', location))[1]) as Record<string, unknown>;
  await until('a check failed', () => router.fleet.workers[0]!.problem !== null);
  const pending = await shown();
  const job = pending['job_status'] as Record<string, unknown>;
  deepEqual([pending['status'], pending['is_healthy'], pending['connection_mode']], ['pending', false, 'HTTP']);
  deepEqual(
    { ...job, timestamp: 0 },
    {
      job_type: 'AddWorker',
      worker_url: engine.url,
      status: 'pending',
      message: '/health answered 503',
      timestamp: 0,
    },
  );
  match(String(job['timestamp']), /^\d{10}$/);
  isUp = true;
  await until('it is healthy', () => router.fleet.workers[0]!.isHealthy);
  const ready = await shown();
  deepEqual([ready['status'], ready['is_healthy'], ready['job_status']], ['ready', true, undefined]);
  isUp = false;
  await until('it is in quarantine', () => !router.fleet.workers[0]!.isHealthy);
  equal((await shown())['status'], 'failed');
});

test('sglang: a worker that does not come up in time has failed', async (t) => {
  const health = { disableHealthCheck: false, healthCheckIntervalSecs: 0.02, workerStartupTimeoutSecs: 0 };
  const { ask } = await asker(t, { workerApi: 'sglang', ...health });
  const engine = await startEngine(t);
  engine.kill();
  const [, text] = await ask('POST', '/workers', { url: engine.url });
  const { location } = JSON.parse(text) as { location: string };
  const shown = async () => JSON.parse((await ask('GET', location))[1]) as { status: string; job_status: object };
  await until('it has failed', async () => (await shown()).status === 'failed');
  match(JSON.stringify((await shown()).job_status), /"status":"failed","message":("ECONNREFUSED"|null)/);
});

test('adding a worker twice is no error, and no second worker', async (t) => {
  const { router, ask } = await asker(t, { workerApi: 'sglang' });
  const [first, again] = [await ask('POST', '/workers', { url: A }), await ask('POST', '/workers', { url: A })];
  deepEqual(again, first);
  equal(first[0], 202);
  equal(router.fleet.workers.length, 1);
});

test('PUT and PATCH change what they name and leave the rest', async (t) => {
  const { router, ask } = await asker(t, {});
  const given = {
    url: A,
    model_id: 'm',
    priority: 7,
    cost: 2.5,
    labels: { zone: 'b', rack: '1' },
    bootstrap_port: 9000,
  };
  await ask('POST', '/workers', given);
  const [worker] = router.fleet.workers;
  const place = `/workers/${worker!.id}`;
  const accepted = `{"status":"accepted","worker_id":"${worker!.id}","message":"Worker updated"}`;
  deepEqual(await ask('PUT', place, { priority: 9, labels: { zone: 'c', new: 'x' } }), [202, accepted]);
  deepEqual(await ask('PATCH', place, { cost: 1, labels: { rack: null }, worker_type: 'regular', url: A }), [
    202,
    accepted,
  ]);
  const shown = JSON.parse((await ask('GET', place))[1]) as Record<string, unknown>;
  const { priority, cost, model_id, bootstrap_port, metadata } = shown;
  deepEqual(
    { priority, cost, model_id, bootstrap_port },
    { priority: 9, cost: 1, model_id: 'm', bootstrap_port: 9000 },
  );
  const { zone, new: added, rack } = metadata as Record<string, string>;
  deepEqual([zone, added, rack], ['c', 'x', undefined]);
  deepEqual(await ask('PUT', place, {}), [202, accepted]);
});

test('PUT takes a new key for the engine, and never shows it', async (t) => {
  const { router, ask } = await asker(t, { workerUrls: [A, B] });
  const [worker, other] = router.fleet.workers;
  const before = other!.key.authorization;
  equal((await ask('PUT', `/workers/${worker!.id}`, { api_key: 'secret' }))[0], 202);
  deepEqual([worker!.key.authorization, other!.key.authorization], ['Bearer secret', before]);
  equal((await ask('GET', `/workers/${worker!.id}`))[1].includes('secret'), false);
});

test('what a worker can not become is refused in words, and nothing of it is done', async (t) => {
  const { router, ask } = await asker(t, { workerUrls: [A, B] });
  const place = `/workers/${router.fleet.workers[0]!.id}`;
  const before = (await ask('GET', place))[1];
  for (const wrong of [
    { priority: 3, worker_type: 'prefill' },
    { priority: 3, url: B },
    { priority: 3, url: 'http://127.0.0.1:1' },
    { priority: 3, url: '' },
    { priority: -1 },
    { priority: 'high' },
    { cost: -1 },
    { bootstrap_port: 70_000 },
    { labels: { a: 5 } },
    { api_key: 'two words' },
    [],
    null,
  ]) {
    const [status, text] = await ask('PUT', place, wrong);
    deepEqual([status, (JSON.parse(text) as { code: string }).code], [400, 'BAD_REQUEST'], JSON.stringify(wrong));
  }
  equal((await ask('GET', place))[1], before);
  equal((await ask('PUT', '/workers/00000000-0000-4000-8000-000000000000', {}))[0], 404);
  deepEqual(await ask('PATCH', '/workers/abc', {}), [
    400,
    `{"error":"Invalid worker_id 'abc' (expected UUID)","code":"BAD_REQUEST"}`,
  ]);
});

test('names of labels are the caller’s, whatever they are', async (t) => {
  const { router, ask } = await asker(t, {});
  const body = `{"url":"${A}","labels":{"__proto__":"x","constructor":"y"},"models":["a",{"b":1}],"nothing":null}`;
  equal((await ask('POST', '/workers', JSON.parse(body)))[0], 202);
  const { labels } = router.fleet.workers[0]!;
  equal(Object.getPrototypeOf(labels), null);
  deepEqual([labels['constructor'], labels['models'], 'nothing' in labels], ['y', '["a",{"b":1}]', false]);
});
