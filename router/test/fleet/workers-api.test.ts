import { deepEqual, equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

interface Shown {
  readonly id: string;
  readonly url: string;
  readonly [field: string]: unknown;
}

const A = 'http://127.0.0.1:10090';
const NOBODY = '/workers/00000000-0000-4000-8000-000000000000';

test('POST /workers: 202 with the place of the new worker', async (t) => {
  const router = await startTestRouter(t);
  const got = await send(t, router.url, request('POST', '/workers', JSON.stringify({ url: A })));
  equal(got.status, 202);
  const said = JSON.parse(got.text) as Record<string, string>;
  match(said['worker_id']!, /^[\da-f-]{36}$/);
  equal(got.get('location'), `/workers/${said['worker_id']}`);
  deepEqual(
    { ...said, message: '' },
    {
      status: 'accepted',
      worker_id: said['worker_id'],
      url: A,
      location: got.get('location'),
      message: '',
    },
  );
});

test('GET /workers and /workers/:id show what was given', async (t) => {
  const router = await startTestRouter(t);
  const body = { url: A, model_id: 'qwen', priority: 7, cost: 2.5, labels: { zone: 'b' }, worker_type: 'regular' };
  const added = await send(t, router.url, request('POST', '/workers', JSON.stringify(body)));
  const one = await send(t, router.url, request('GET', added.get('location')!));
  equal(one.status, 200);
  const shown = JSON.parse(one.text) as Shown;
  const { url, model_id, priority, cost, worker_type, load, connection_mode } = shown;
  deepEqual(
    { url, model_id, priority, cost, worker_type, load, connection_mode },
    { url: A, model_id: 'qwen', priority: 7, cost: 2.5, worker_type: 'regular', load: 0, connection_mode: 'http' },
  );
  equal((shown['metadata'] as Record<string, string>)['zone'], 'b');
  const all = JSON.parse((await send(t, router.url, request('GET', '/workers'))).text) as Record<string, unknown>;
  deepEqual(all, { workers: [shown], total: 1, stats: { prefill_count: 0, decode_count: 0, regular_count: 1 } });
});

test('prefill and decode workers are counted apart and get no whole requests', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t);
  await send(t, router.url, request('POST', '/workers', JSON.stringify({ url: A, worker_type: 'prefill' })));
  await send(t, router.url, request('POST', '/workers', JSON.stringify({ url: engine.url, worker_type: 'decode' })));
  const all = JSON.parse((await send(t, router.url, request('GET', '/workers'))).text) as { stats: unknown };
  deepEqual(all.stats, { prefill_count: 1, decode_count: 1, regular_count: 0 });
  equal((await send(t, router.url, request('POST', '/generate', '{}'))).status, 503);
  equal(engine.requests.length, 0);
});

test('an unknown id: 404 WORKER_NOT_FOUND; what is no id: 400', async (t) => {
  const router = await startTestRouter(t);
  for (const method of ['GET', 'DELETE']) {
    const unknown = await send(t, router.url, request(method, NOBODY));
    deepEqual([unknown.status, (JSON.parse(unknown.text) as { code: string }).code], [404, 'WORKER_NOT_FOUND']);
    for (const id of ['5', 'not-a-uuid', encodeURIComponent(A)]) {
      const bad = await send(t, router.url, request(method, `/workers/${id}`));
      deepEqual([bad.status, (JSON.parse(bad.text) as { code: string }).code], [400, 'BAD_REQUEST']);
    }
  }
});

test('POST /workers without a URL, with a wrong type or no JSON: 400 with a reason', async (t) => {
  const router = await startTestRouter(t);
  for (const body of [
    '',
    'x',
    '{}',
    '[]',
    '{"url":""}',
    '{"url":5}',
    `{"url":"${A}","worker_type":"king"}`,
    '{"url":"ftp://h"}',
  ]) {
    const got = await send(t, router.url, request('POST', '/workers', body));
    equal(got.status, 400, body);
    equal((JSON.parse(got.text) as { code: string }).code, 'BAD_REQUEST');
  }
  equal(router.fleet.workers.length, 0);
});

test('DELETE /workers/:id removes; the second time it is not found', async (t) => {
  const router = await startTestRouter(t);
  const added = await send(t, router.url, request('POST', '/workers', JSON.stringify({ url: A })));
  const place = added.get('location')!;
  equal((await send(t, router.url, request('DELETE', place))).status, 202);
  equal((await send(t, router.url, request('DELETE', place))).status, 404);
  equal(router.fleet.workers.length, 0);
});

test('a worker\u2019s page tells what the engine is and why it does not serve', async (t) => {
  const engine = await startEngine(t, { control: () => 'HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n' });
  const router = await startTestRouter(t, { disableHealthCheck: false });
  const added = await send(t, router.url, request('POST', '/workers', JSON.stringify({ url: engine.url })));
  await until('it is in quarantine', () => router.fleet.eligible.length === 0);
  const shown = JSON.parse((await send(t, router.url, request('GET', added.get('location')!))).text) as Shown;
  deepEqual([shown['is_healthy'], shown['not_serving_because'], shown['engine']], [false, ['unhealthy'], null]);
});
