import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const HEADER = 'x-data-parallel-rank';

test('each rank is a worker: its requests carry the rank, once', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('{}') });
  const workerUrls = [0, 1, 2].map((rank) => `${engine.url}@${rank}`);
  const router = await startTestRouter(t, { workerUrls, policy: 'round_robin' });
  for (let i = 0; i < 6; i++) {
    const bytes = request('POST', '/v1/completions', '{"prompt":"x"}');
    equal((await send(t, router.url, bytes)).status, 200);
  }
  deepEqual(
    engine.requests.map(({ head, target }) => [head.get(HEADER), target]),
    ['0', '1', '2', '0', '1', '2'].map((rank) => [rank, '/v1/completions']),
  );
  ok(engine.requests.every(({ head }) => head.get('host') === engine.url.slice('http://'.length)));
  const shown = JSON.parse((await send(t, router.url, request('GET', '/workers'))).text) as {
    workers: { url: string; dp_rank: number }[];
  };
  deepEqual(
    shown.workers.map(({ url, dp_rank }) => [url, dp_rank]),
    workerUrls.map((url, rank) => [url, rank]),
  );
});

test('a rank that the client asks for stays as it is', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('{}') });
  const router = await startTestRouter(t, { workerUrls: [`${engine.url}@0`] });
  await send(t, router.url, request('POST', '/generate', '{}', ['X-Data-Parallel-Rank: 7']));
  equal(engine.requests[0]!.head.get(HEADER), '7');
});

test('a worker without a rank is sent none', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('{}') });
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  await send(t, router.url, request('POST', '/generate', '{}'));
  equal(engine.requests[0]!.head.get(HEADER), undefined);
});

test('health is asked at the engine, below its base path, without a rank', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, { disableHealthCheck: false, workerUrls: [`${engine.url}/base@5`] });
  await until('it was asked', () => engine.questions.length > 0);
  equal(engine.questions[0], '/base/health');
  equal(router.fleet.workers[0]!.url, `${engine.url}/base@5`);
});

test('ranks are load-balanced by their own counts, and removed one by one', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, { workerUrls: [0, 1].map((rank) => `${engine.url}@${rank}`) });
  const clients = await Promise.all([0, 1].map(() => connectClient(t, router.url)));
  for (const client of clients) client.write(request('POST', '/generate', '{}'));
  const asked = [await engine.next(), await engine.next()];
  deepEqual(new Set(asked.map(({ head }) => head.get(HEADER))), new Set(['0', '1']));
  for (const one of asked) one.answer('{}');
  for (const client of clients) await client.answer();
  const removed = await send(t, router.url, request('POST', `/remove_worker?url=${engine.url}@0`));
  deepEqual(JSON.parse(removed.text), { status: 'success', worker_urls: { [`${engine.url}@1`]: 0 } });
});
