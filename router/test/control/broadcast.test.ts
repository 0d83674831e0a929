import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { type EngineRequest, answer, deadUrl, startEngine } from '../harness/engine.ts';
import { post, startEngines } from '../harness/fleet.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { ControlBrackets } from '../../src/swap/control-brackets.ts';
import { reportOf } from './report.ts';

test('what steers engines reaches all of them, byte for byte, and the report says what each answered', async (t) => {
  const engines = await Promise.all(
    ['{"success": true, "id": 18446744073709551615}', '"plain"', 'Cache flushed.\n'].map((said) =>
      startEngine(t, { onRequest: (asked) => asked.answer(said) }),
    ),
  );
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url) });
  const body = '{ "model_path":"/m",  "seq": 18446744073709551615, "é\\u00e9": [1.0] }';
  const got = await send(t, router.url, request('POST', '/update_weights_from_disk?x=a%20b', body, ['X-Mine: Yes']));
  equal(got.status, 200);
  equal(got.get('content-type'), 'application/json');
  for (const engine of engines) {
    const asked = await engine.next();
    equal(asked.head.line, 'POST /update_weights_from_disk?x=a%20b HTTP/1.1');
    match(asked.head.headText, /\r\nX-Mine: Yes\r\n/);
    equal((await asked.payload()).toString('latin1'), body);
    equal(engine.requests.length, 1);
  }
  const { results, ok: done, failed } = reportOf(got);
  deepEqual([done, failed], [3, 0]);
  deepEqual(
    results.map(({ worker, status }) => [worker, status]),
    engines.map(({ url }) => [url, 200]),
  );
  ok(got.text.includes('"body":{"success": true, "id": 18446744073709551615}'), 'numbers as the engine wrote them');
  deepEqual([results[1]!.body, results[2]!.body], ['plain', 'Cache flushed.\n']);
  ok(results.every(({ ms }) => ms >= 0));
});

test('a 200 that says "success": false, wherever in the object, is a failure of that engine', async (t) => {
  const { log, of } = recordedLog();
  const engines = await Promise.all(
    ['{"success": true}', '{"message": "no such directory", "success": false}'].map((said) =>
      startEngine(t, { onRequest: (asked) => asked.answer(said) }),
    ),
  );
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url) }, { log });
  const got = await send(t, router.url, request('POST', '/update_weights_from_disk', '{"model_path":"/m"}'));
  const { ok: done, failed, results } = reportOf(got);
  deepEqual([got.status, done, failed, results[1]!.status], [207, 1, 1, 200]);
  const line = of('control request finished').find(({ level }) => level === 40);
  match(String(line!['error']), /no such directory/);
});

test('a body of megabytes reaches all, however it is framed', async (t) => {
  const onRequest = (asked: EngineRequest): void => void asked.whole.then(() => asked.answer('{}'));
  const engines = await Promise.all([1, 2, 3].map(() => startEngine(t, { onRequest })));
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url) });
  const tensor = Buffer.alloc(6_000_001, 'tensor');
  const head = 'POST /update_weights_from_tensor HTTP/1.1\r\nhost: h\r\n';
  const length = tensor.length;
  for (const bytes of [
    Buffer.concat([Buffer.from(`${head}content-length: ${length}\r\n\r\n`), tensor]),
    Buffer.concat([
      Buffer.from(`${head}transfer-encoding: chunked\r\n\r\n${length.toString(16)}\r\n`),
      tensor,
      Buffer.from('\r\n0\r\n\r\n'),
    ]),
  ]) {
    equal((await send(t, router.url, bytes)).status, 200);
    for (const engine of engines) ok((await (await engine.next()).payload()).equals(tensor));
  }
});

test('a client that asks whether to continue gets 100', async (t) => {
  const engines = await startEngines(t, 2);
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url) });
  const client = await connectClient(t, router.url);
  client.write('POST /pause HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n');
  await client.read('HTTP/1.1 100 Continue\r\n\r\n');
  client.write('{}');
  equal((await client.answer('POST')).status, 200);
  equal(engines[0]!.requests[0]!.head.get('expect'), undefined);
});

test('a dead engine is named, and so is one that fails; the others did it: 207', async (t) => {
  const well = await startEngine(t, { onRequest: (asked) => asked.answer('{}') });
  const failing = await startEngine(t, {
    onRequest: ({ connection }) => connection.write(answer(500, '{"error":"no memory"}')),
  });
  const cut = await startEngine(t, { onRequest: ({ connection }) => connection.reset() });
  const dead = await deadUrl();
  const workerUrls = [well.url, failing.url, cut.url, dead];
  const router = await startTestRouter(t, { workerUrls });
  const got = await send(t, router.url, post('/pause_generation', { mode: 'in_place' }));
  equal(got.status, 207);
  const { results, ok: done, failed } = reportOf(got);
  deepEqual([done, failed], [1, 3]);
  deepEqual(
    results.map(({ worker, status }) => [worker, status]),
    [
      [well.url, 200],
      [failing.url, 500],
      [cut.url, null],
      [dead, null],
    ],
  );
  deepEqual(results[1]!.body, { error: 'no memory' });
  match(results[2]!.error!, /^no answer: /);
  match(results[3]!.error!, /^no connection: ECONNREFUSED/);
  equal(cut.requests.length, 1, 'what steers is not said twice');
});

test('all engines failed with one status: it is the status of the report, which has the error of the first too', async (t) => {
  const error = '{ "error": {"message": "No adapter found", "n": 18446744073709551615} }';
  const statuses = [404, 404];
  const bodies = [error, '{}'];
  const engines = await Promise.all(
    statuses.map((_, i) =>
      startEngine(t, { onRequest: ({ connection }) => connection.write(answer(statuses[i]!, bodies[i]!)) }),
    ),
  );
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url) });
  const load = () => send(t, router.url, post('/load_lora_adapter', { lora_name: 'a', lora_path: '/a' }));
  const both = await load();
  deepEqual([both.status, both.get('x-turnout-error'), reportOf(both).failed], [404, undefined, 2]);
  ok(both.text.includes('"error": {"message": "No adapter found", "n": 18446744073709551615}'), both.text);
  deepEqual(
    reportOf(both).results.map(({ worker, status }) => [worker, status]),
    engines.map(({ url }) => [url, 404]),
  );
  for (const body of ['{}', 'no JSON', '[1]', '{"ok": 1}', '{"failed": 0, "results": []}']) {
    bodies[0] = body;
    const { status, text } = await load();
    deepEqual(
      [status, reportOf({ text }).ok, reportOf({ text }).failed, reportOf({ text }).results.length],
      [404, 0, 2, 2],
    );
  }
  statuses[1] = 500;
  equal((await load()).status, 502);
  statuses[0] = 299;
  equal((await load()).status, 207);
  statuses.fill(599);
  equal((await load()).status, 599);
});

test('no engine did it: 502; no engine is there: 503', async (t) => {
  const router = await startTestRouter(t, { workerUrls: [await deadUrl(), await deadUrl()] });
  const got = await send(t, router.url, post('/flush_cache', {}));
  deepEqual([got.status, reportOf(got).failed], [502, 2]);
  for (const worker of router.fleet.workers.slice()) router.fleet.remove(worker);
  const none = await send(t, router.url, post('/flush_cache', {}));
  deepEqual([none.status, none.get('x-turnout-error')], [503, 'no_available_workers']);
});

test('engines out of routing get the request as well', async (t) => {
  const engines = await startEngines(t, 2);
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url) });
  router.fleet.setReason(router.fleet.workers[0]!, 'unhealthy', true);
  router.fleet.setReason(router.fleet.workers[1]!, 'version', true);
  equal((await send(t, router.url, post('/abort_request', { abort_all: true }))).status, 200);
  deepEqual(
    engines.map(({ requests }) => requests.length),
    [1, 1],
  );
});

test('an engine of several ranks gets the request once', async (t) => {
  const engines = await startEngines(t, 2);
  const workerUrls = engines.flatMap(({ url }) => [0, 1, 2].map((rank) => `${url}@${rank}`));
  const router = await startTestRouter(t, { workerUrls });
  const got = await send(t, router.url, post('/pause', {}));
  deepEqual(
    reportOf(got).results.map(({ worker }) => worker),
    engines.map(({ url }) => url),
  );
  for (const { requests } of engines) {
    equal(requests.length, 1);
    equal(requests[0]!.head.get('x-data-parallel-rank'), undefined);
  }
});

test('each engine is shown its own key', async (t) => {
  const engines = await startEngines(t, 2);
  const router = await startTestRouter(t, { workerUrls: [engines[0]!.url], workerApiKey: 'common' });
  router.fleet.add(engines[1]!.url, { apiKey: 'own' });
  await send(t, router.url, post('/pause', {}, ['authorization: Bearer client']));
  deepEqual(
    engines.map(({ requests }) => requests[0]!.head.get('authorization')),
    ['Bearer common', 'Bearer own'],
  );
});

test('whoever leaves stops it at all engines', async (t) => {
  const engines = await Promise.all([startEngine(t), startEngine(t)]);
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url) });
  const client = await connectClient(t, router.url);
  client.write(post('/update_weights_from_disk', {}));
  for (const engine of engines) await engine.next();
  client.reset();
  await until('both are left', () => engines.every(({ openConnections }) => openConnections === 0));
  await untilIdle(router);
});

test('whoever leaves while the weight swaps get ready for the request stops it before any engine has it', async (t) => {
  const ready = Promise.withResolvers<void>();
  const before = t.mock.method(ControlBrackets.prototype, 'before', () => ready.promise);
  const after = t.mock.method(ControlBrackets.prototype, 'after', async () => {});
  const engines = await startEngines(t, 2);
  const router = await startTestRouter(t, {
    workerUrls: engines.map(({ url }) => url),
    swapSnapshots: '/snapshots/{identity}',
  });
  const client = await connectClient(t, router.url);
  client.write(request('POST', '/continue_generation', '{}'));
  await until('it waits', () => before.mock.callCount() === 1);
  client.reset();
  await untilIdle(router);
  ready.resolve();
  const asked = (): number => engines.reduce((count, { requests }) => count + requests.length, 0);
  await until('it goes on or ends', () => after.mock.callCount() === 1 || asked() > 0);
  equal(asked(), 0);
  const [path, done, failed] = after.mock.calls[0]!.arguments as Parameters<ControlBrackets['after']>;
  deepEqual([path, done, failed.map(({ url }) => url)], ['/continue_generation', [], engines.map(({ url }) => url)]);
});

test('x-turnout-timeout is the time limit of all of it', async (t) => {
  const quick = await startEngine(t, { onRequest: (asked) => asked.answer('{}') });
  const slow = await startEngine(t);
  const router = await startTestRouter(t, { workerUrls: [quick.url, slow.url] });
  const got = await send(t, router.url, post('/flush_cache', {}, ['x-turnout-timeout: 0.2']));
  deepEqual([got.status, got.get('x-turnout-error')], [504, 'request_timeout']);
  await until('the slow one is left', () => slow.openConnections === 0);
});

test('what only asks goes to one engine, and its answer passes', async (t) => {
  const engines = await startEngines(t, 3);
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url) });
  for (const bytes of [
    request('GET', '/server_info'),
    request('POST', '/get_weights_by_name', '{}'),
    request('GET', '/hicache/storage-backend'),
    request('OPTIONS', '/flush_cache'),
    request('GET', '/model_info'),
  ]) {
    match((await send(t, router.url, bytes)).text, /^[012]$/, bytes.split('\r\n')[0]);
  }
  equal(
    engines.reduce((sum, { requests }) => sum + requests.length, 0),
    5,
  );
  equal(reportOf(await send(t, router.url, request('GET', '/flush_cache'))).ok, 3, 'SGLang takes it by GET too');
});

test('engines of a full fleet get a pause', async (t) => {
  const engine = await startEngine(t, {
    onRequest: (asked) => {
      if (asked.target !== '/generate') asked.answer('{}');
    },
  });
  const limits = { maxConcurrentRequests: 1, queueSize: 0, workerMaxInflight: 1 };
  const router = await startTestRouter(t, { workerUrls: [engine.url], ...limits });
  const client = await connectClient(t, router.url);
  client.write(post('/generate', {}));
  await engine.next();
  equal((await send(t, router.url, post('/generate', {}))).status, 429);
  equal((await send(t, router.url, post('/pause_generation', {}))).status, 200);
});

test('paths are added and taken out by option, and what was added needs an admin key as all that steers', async (t) => {
  const engines = await startEngines(t, 2);
  const router = await startTestRouter(t, {
    workerUrls: engines.map(({ url }) => url),
    broadcastPaths: ['/rl/*', '/reload'],
    singleWorkerPaths: ['/flush_cache'],
    apiKey: ['data'],
    adminApiKey: ['admin'],
  });
  const ask = (path: string, key: string) =>
    send(t, router.url, request('POST', path, '{}', [`authorization: Bearer ${key}`]));
  for (const path of ['/rl/step', '/reload', '/pause']) {
    equal((await ask(path, 'data')).status, 403, path);
    equal(reportOf(await ask(path, 'admin')).ok, 2, path);
  }
  match((await ask('/flush_cache', 'admin')).text, /^[01]$/);
  equal((await ask('/flush_cache', 'data')).status, 403);
});

test('aborts without a body are about everybody, in chunks as well', async (t) => {
  const engines = await startEngines(t, 2);
  const router = await startTestRouter(t, {
    workerUrls: engines.map(({ url }) => url),
    apiKey: ['data'],
    adminApiKey: ['admin'],
  });
  const abort = (path: string, body: string) =>
    `POST ${path} HTTP/1.1\r\nhost: h\r\nauthorization: Bearer data\r\ntransfer-encoding: chunked\r\n\r\n${body}0\r\n\r\n`;
  for (const path of ['/abort_requests', '/abort_request', `/abort_requests?worker=${engines[0]!.url}`]) {
    equal((await send(t, router.url, abort(path, ''))).status, 403, path);
  }
  deepEqual(
    engines.map(({ requests }) => requests.length),
    [0, 0],
  );
  const mine = await send(t, router.url, abort('/abort_request', '12\r\n{"rid":"mine0001"}\r\n'));
  equal(reportOf(mine).ok, 2);
});

test('an answer that is too long for a report is left out, and was given nevertheless', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('x'.repeat(1_100_000)) });
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  const got = await send(t, router.url, post('/collective_rpc', {}));
  const { results, ok: done } = reportOf(got);
  deepEqual([got.status, done, results[0]!.status], [200, 1, 200]);
  match(results[0]!.error!, /1100000 bytes/);
});
