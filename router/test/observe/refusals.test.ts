import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { post, startFleetScene } from '../harness/fleet.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { startScene, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const WARN = 40;

test('a truncated answer is a warning at the usual level: which request, session, worker, code, bytes sent', async (t) => {
  const { log, of } = recordedLog('info');
  const { engine, client, ask } = await startScene(t, { policy: 'sticky_least_loaded' }, { log });
  const asked = await ask(post('/v1/completions', { prompt: 'p' }, ['x-session-id: s1', 'x-request-id: r1']));
  asked.connection.write('HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100\r\n\r\nfirst part');
  await client.read('first part');
  asked.connection.reset();
  await until('the line is written', () => of('answer truncated').length > 0);
  const { level, requestId, session, worker, code, status, bytesSent, path } = of('answer truncated')[0]!;
  deepEqual(
    { level, requestId, session, worker, code, status, bytesSent, path },
    {
      level: WARN,
      requestId: 'r1',
      session: 's1',
      worker: engine.url,
      code: 'upstream_reset',
      status: 200,
      bytesSent: 'first part'.length,
      path: '/v1/completions',
    },
  );
});

for (const [status, code, options, bytes] of [
  [401, 'unauthorized', { apiKey: ['key'] }, post('/v1/completions', { prompt: 'p' }, ['x-session-id: s1'])],
  [413, 'payload_too_large', { maxPayloadSize: 10 }, post('/v1/completions', { prompt: 'a long prompt' })],
  [503, 'no_available_workers', {}, post('/v1/completions', { prompt: 'p' }, ['x-session-id: s1'])],
] as const) {
  test(`a request that is refused with ${status} is a warning`, async (t) => {
    const { log, of } = recordedLog('info');
    const router = await startTestRouter(t, { ...options }, { log });
    equal((await send(t, router.url, bytes)).status, status);
    const [line] = of('request refused');
    ok(line !== undefined);
    equal(line.level, WARN);
    deepEqual([line['code'], line['status'], line['path'], line['bytesSent']], [code, status, '/v1/completions', 0]);
    if (status !== 413) equal(line['session'], 's1');
    ok(String(line['detail']).length > 10);
  });
}

test('504 after the time limit is a warning', async (t) => {
  const { log, of } = recordedLog('info');
  const { engine, client } = await startScene(t, { requestTimeoutSecs: 0.2 }, { log });
  client.write(post('/v1/completions', { prompt: 'p' }));
  const asked = await engine.next();
  equal((await client.answer()).status, 504);
  const [line] = of('request refused');
  deepEqual([line!.level, line!['code'], line!['worker']], [WARN, 'request_timeout', engine.url]);
  asked.connection.reset();
});

test('404 for an unknown model is a warning', async (t) => {
  const { log, of } = recordedLog('info');
  const engines = await Promise.all(
    ['a', 'b'].map((model) => {
      const list = JSON.stringify({ object: 'list', data: [{ id: model }] });
      return startEngine(t, { control: (path) => (path === '/v1/models' ? answer(200, list) : answer(200, '')) });
    }),
  );
  const workerUrls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, { workerUrls, disableHealthCheck: false }, { log });
  await until('models are known', () => router.fleet.workers.every(({ models }) => models !== null));
  equal((await send(t, router.url, post('/v1/completions', { prompt: 'p', model: 'nope' }))).status, 404);
  deepEqual(
    of('request refused').map((line) => [line.level, line['code'], line['status']]),
    [[WARN, 'model_not_found', 404]],
  );
});

test('many refusals with one code: the first ten are written, the others are counted in one line', async (t) => {
  const { log, of } = recordedLog('info');
  const router = await startTestRouter(t, {}, { log });
  const client = await connectClient(t, router.url);
  for (let i = 0; i < 25; i++) {
    client.write(request('GET', '/hello'));
    equal((await client.answer()).status, 503);
  }
  equal(of('request refused').length, 10);
  await router.close();
  const [line, ...more] = of('more requests were refused or truncated with this code');
  deepEqual([line!.level, line!['code'], line!['count'], more.length], [WARN, 'no_available_workers', 15, 0]);
});

test('one warning when no worker is available any more, one line when there is one again', async (t) => {
  const { log, of } = recordedLog('info');
  const { router } = await startFleetScene(t, 2, {}, { log });
  const [a, b] = router.fleet.workers;
  equal(of('workers are available again').length, 0, 'not at the start');
  router.fleet.setReason(a!, 'unhealthy', true);
  equal(of('no worker is available: new requests are refused').length, 0);
  router.fleet.setReason(b!, 'breaker', true);
  const [line] = of('no worker is available: new requests are refused');
  deepEqual([line!.level, line!['eligible'], line!['workers']], [WARN, 0, 2]);
  match(String(line!['detail']), /1 unhealthy, 1 ejected by the circuit breaker/);
  router.fleet.setReason(b!, 'unhealthy', true);
  equal(of('no worker is available: new requests are refused').length, 1);
  router.fleet.setReason(a!, 'unhealthy', false);
  deepEqual(
    of('workers are available again').map((each) => each['eligible']),
    [1],
  );
});
