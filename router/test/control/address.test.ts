import { deepEqual, equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { post, startEngines, startFleetScene } from '../harness/fleet.ts';
import { chunk } from '../harness/message.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { reportOf } from './report.ts';

test('one worker is named by URL or id, in the query or a header, and its own answer passes untouched', async (t) => {
  const said = answer(202, '{"n": 18446744073709551615 }', ['content-type: application/x-mine', 'x-engine: b']);
  const other = await startEngine(t);
  const named = await startEngine(t, { onRequest: ({ connection }) => connection.write(said) });
  const router = await startTestRouter(t, { workerUrls: [other.url, named.url] });
  const worker = router.fleet.get(named.url)!;
  // A policy would not choose it.
  router.fleet.setReason(worker, 'unhealthy', true);
  const encoded = encodeURIComponent(named.url);
  const fields = ['x-turnout-worker: '];
  for (const [target, header, sent] of [
    [`/pause?worker=${encoded}&mode=keep%20it`, '', '/pause?mode=keep%20it'],
    [`/pause?a=1&worker=${worker.id}`, '', '/pause?a=1'],
    [`/pause?worker=${named.url}/`, '', '/pause'],
    ['/pause?a', named.url, '/pause?a'],
    ['/pause', worker.id, '/pause'],
    ['/get_weights_by_name', worker.id, '/get_weights_by_name'],
    ['/model_info?worker=mine', worker.id, '/model_info?worker=mine'],
  ] as const) {
    const got = await send(t, router.url, request('POST', target, '{}', header === '' ? [] : [fields[0] + header]));
    deepEqual([got.status, got.get('x-engine'), got.text], [202, 'b', '{"n": 18446744073709551615 }'], target);
    const asked = await named.next();
    equal(asked.target, sent);
    equal(asked.head.get('x-turnout-worker'), undefined);
  }
  equal(other.requests.length, 0);
});

test('a name of 60,000 slashes is searched once, in linear time, however many workers there are', async (t) => {
  const workerUrls = Array.from({ length: 500 }, (_, i) => `http://127.0.0.1:1/${i}`);
  const router = await startTestRouter(t, { workerUrls });
  const got = await send(t, router.url, request('POST', '/pause', '{}', [`x-turnout-worker: ${'/'.repeat(60_000)}x`]));
  deepEqual([got.status, got.get('x-turnout-error')], [404, 'worker_not_found']);
});

test('an error of the named worker passes too, and no other worker is tried', async (t) => {
  const named = await startEngine(t, { onRequest: ({ connection }) => connection.write(answer(503, 'busy')) });
  const others = await startEngines(t, 2);
  const router = await startTestRouter(t, { workerUrls: [named.url, ...others.map(({ url }) => url)] });
  const got = await send(t, router.url, request('GET', `/server_info?worker=${named.url}`));
  deepEqual([got.status, got.text], [503, 'busy']);
  named.kill();
  const gone = await send(t, router.url, request('GET', `/server_info?worker=${named.url}`));
  deepEqual([gone.status, gone.get('x-turnout-error')], [503, 'no_available_workers']);
  deepEqual(
    others.map(({ requests }) => requests.length),
    [0, 0],
  );
});

test('the response of a named worker is passed on as it comes, and ends with its client', async (t) => {
  const named = await startEngine(t);
  const router = await startTestRouter(t, { workerUrls: [named.url] });
  const client = await connectClient(t, router.url);
  client.write(request('POST', `/get_weights_by_name?worker=${named.url}`, '{}'));
  const asked = await named.next();
  asked.beginStream();
  asked.connection.write(chunk('data: 1\n\n'));
  await client.read('data: 1\n\n');
  equal(router.fleet.inFlight[0], 0, 'it takes no capacity of the worker');
  client.reset();
  await asked.connection.untilEnded();
  await untilIdle(router);
});

test('a request that controls nothing takes the path of all requests to the worker that is named', async (t) => {
  const named = await startEngine(t);
  const router = await startTestRouter(t, { workerUrls: [named.url] });
  const client = await connectClient(t, router.url);
  client.write(request('GET', '/model_info', '', [`x-turnout-worker: ${named.url}`]));
  const asked = await named.next();
  equal(router.fleet.inFlight[0], 1);
  asked.answer('{}');
  equal((await client.answer()).status, 200);
});

test('a rank that is named gets it as a rank, its engine as a whole', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('{}') });
  const router = await startTestRouter(t, { workerUrls: [0, 1].map((rank) => `${engine.url}@${rank}`) });
  for (const name of [`${engine.url}@1`, engine.url]) {
    equal((await send(t, router.url, post('/pause', {}, [`x-turnout-worker: ${name}`]))).status, 200);
  }
  deepEqual(
    engine.requests.map(({ head }) => head.get('x-data-parallel-rank')),
    ['1', undefined],
  );
});

test('a name that is unknown, malformed or given twice is refused', async (t) => {
  const { router, engines } = await startFleetScene(t, 2);
  for (const [target, status, code] of [
    ['/pause?worker=http://127.0.0.1:9', 404, 'worker_not_found'],
    ['/pause?worker=', 404, 'worker_not_found'],
    ['/pause?group=none', 404, 'worker_not_found'],
    ['/pause?session=s', 404, 'session_not_found'],
    ['/pause?worker=%zz', 400, 'bad_request'],
    [`/pause?worker=${engines[0]!.url}&worker=${engines[1]!.url}`, 400, 'bad_request'],
    [`/pause?worker=${engines[0]!.url}&group=g`, 400, 'bad_request'],
  ] as const) {
    const got = await send(t, router.url, post(target, {}));
    deepEqual([got.status, got.get('x-turnout-error')], [status, code], target);
  }
  match((await send(t, router.url, post('/pause?session=s', {}))).text, /keeps no sessions/);
  deepEqual(
    engines.map(({ requests }) => requests.length),
    [0, 0],
  );
});

test('a part of the fleet is named by its label', async (t) => {
  const engines = await startEngines(t, 3);
  const router = await startTestRouter(t);
  for (const [i, { url }] of engines.entries()) {
    const labels = { group: i === 1 ? 'actor' : 'critic & co' };
    equal((await send(t, router.url, post('/workers', { url, labels }))).status, 202);
  }
  const got = await send(t, router.url, post('/pause?group=critic+%26%20co&mode=abort', {}));
  deepEqual(
    reportOf(got).results.map(({ worker }) => worker),
    [engines[0]!.url, engines[2]!.url],
  );
  equal((await engines[2]!.next()).target, '/pause?mode=abort');
  equal(engines[1]!.requests.length, 0);
});

for (const policy of ['sticky_least_loaded', 'manual', 'rollout']) {
  test(`${policy}: the worker of a session is known`, async (t) => {
    const { router, engines, who } = await startFleetScene(t, 3, { policy });
    const turn = (session: string) => post('/generate', { text: 'x' }, [`x-session-id: ${session}`]);
    for (const session of ['a', 'b', 'c', 'd']) {
      const home = await who(turn(session));
      const got = await send(t, router.url, post(`/abort_request?session=${session}`, { abort_all: true }));
      deepEqual(
        reportOf(got).results.map(({ worker }) => worker),
        [engines[home]!.url],
      );
    }
    const unknown = await send(t, router.url, post('/abort_request?session=z', { abort_all: true }));
    deepEqual([unknown.status, unknown.get('x-turnout-error')], [404, 'session_not_found']);
  });
}

test('on other paths the query is the engine’s', async (t) => {
  const { router, engines } = await startFleetScene(t, 1);
  await send(t, router.url, post('/generate?worker=x&session=y', {}));
  await send(t, router.url, request('GET', '/model_info?group=z'));
  deepEqual(
    engines[0]!.requests.map(({ target }) => target),
    ['/generate?worker=x&session=y', '/model_info?group=z'],
  );
});
