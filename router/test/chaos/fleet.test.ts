import { deepEqual, equal, ok } from 'node:assert/strict';
import dns from 'node:dns';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { type Engine, type EngineConnection, answer, startEngine, wellButUnknown } from '../harness/engine.ts';
import { connectAsker, post, startEngines } from '../harness/fleet.ts';
import { chunk } from '../harness/message.ts';
import type { Worker } from '../../src/fleet/worker.ts';
import type { Plugin } from '../../src/plugin.ts';
import { KvPublisher } from '../harness/kv-publisher.ts';
import { HELLO, type RouterOptions, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { metricOf, startInPlaceOf, untilQuiet, well } from './scene.ts';

const GENERATE = request('POST', '/generate', '{"text":"x"}');

const WATCHED: RouterOptions = {
  disableHealthCheck: false,
  healthCheckIntervalSecs: 0.05,
  healthCheckTimeoutSecs: 60,
  healthFailureThreshold: 2,
  healthSuccessThreshold: 2,
};

test('F22 one of eight flaps under load: no client sees it', async (t) => {
  const engines = await Promise.all(Array.from({ length: 8 }, () => startEngine(t, { onRequest: well() })));
  const router = await startTestRouter(t, {
    ...WATCHED,
    workerUrls: engines.map(({ url }) => url),
    policy: 'round_robin',
  });
  await until('all are known', () => router.fleet.workers.every(({ isHealthy }) => isHealthy));
  const [flapping] = router.fleet.workers;
  const lives: Engine[] = [engines[0]!];
  let isDone = false;
  t.after(() => (isDone = true));
  let sent = 0;
  const failed: string[] = [];
  const run = async (): Promise<void> => {
    const client = await connectClient(t, router.url);
    while (!isDone) {
      sent++;
      client.write(GENERATE);
      const got = await client.answer();
      if (got.status !== 200) failed.push(`${got.status} ${got.text}`);
    }
  };
  const running = Array.from({ length: 8 }, run);
  const FLAPS = 6;
  for (let flap = 0; flap < FLAPS; flap++) {
    const had = lives[0]!.requests.length;
    lives[0]!.onRequest = () => {};
    await until('it dies with a request', () => lives[0]!.requests.length > had);
    lives[0]!.kill();
    await until('it is out', () => !flapping!.isHealthy);
    lives.unshift(await startInPlaceOf(t, lives[0]!, { onRequest: well() }));
    await until('it is back', () => router.fleet.eligible.includes(flapping!));
    await until('it gets work', () => lives[0]!.requests.length > 0);
  }
  isDone = true;
  await Promise.all(running);
  // Answers are single writes: none of them is cut in its middle.
  equal(failed.length, 0, `${failed.length} of ${sent} failed: ${failed[0]}`);
  equal(await metricOf(router.metricsUrl, 'turnout_requests_total{outcome="complete"}'), sent);
  const seen = [...engines.slice(1), ...lives].reduce((sum, { requests }) => sum + requests.length, 0);
  const again = await Promise.all(
    ['reset', 'stale'].map((how) => metricOf(router.metricsUrl, `turnout_retries_total{failure="${how}"}`)),
  );
  ok(seen <= sent + again[0]! + again[1]!, `${seen} requests reached engines, ${sent} were sent`);
  await untilQuiet(router, [...engines.slice(1), lives[0]!]);
});

test('F24 a health path that hangs: its timer ends it, questions do not pile up, and the others are asked on', async (t) => {
  const hanging = await startEngine(t, { onRequest: well('"hanging"') });
  const fine = await startEngine(t, { onRequest: well('"fine"') });
  const router = await startTestRouter(t, {
    ...WATCHED,
    healthCheckTimeoutSecs: 0.2,
    // So many checks of the other one in a row don't exceed that timer by chance.
    healthFailureThreshold: 5,
    workerUrls: [hanging.url, fine.url],
    policy: 'round_robin',
  });
  const [first, second] = router.fleet.workers;
  await until('both are known', () => first!.isHealthy && second!.isHealthy);
  const opened: EngineConnection[] = [];
  hanging.onConnection = (connection) => opened.push(connection);
  let most = 0;
  hanging.control = (path) => {
    most = Math.max(most, opened.filter(({ hasEnded }) => !hasEnded).length);
    return path === '/health' ? null : answer(404, '');
  };
  await until('it is out', () => !router.fleet.eligible.includes(first!));
  const [askedHanging, askedFine] = [hanging.questions.length, fine.questions.length];
  await until(
    'both are asked on',
    () => hanging.questions.length >= askedHanging + 3 && fine.questions.length >= askedFine + 3,
  );
  // The health check, beside it the loads and the metrics (which tell a hung engine), and one whose end is on its way.
  ok(most <= 4, `${most} questions were open at once`);
  equal(second!.isHealthy, true);
  for (let i = 0; i < 4; i++) equal((await send(t, router.url, GENERATE)).text, '"fine"');
  equal(hanging.requests.length, 0);
  hanging.control = wellButUnknown;
  await until('it is back', () => router.fleet.eligible.includes(first!));
  await untilQuiet(router, [fine]);
});

test('F27 a name that means another address: new connections go there, old streams live on', async (t) => {
  const before = await startEngine(t);
  const { hostname, port } = new URL(before.url);
  const after = await startEngine(t, { host: '127.0.0.2', port: Number(port), onRequest: well('"new"') });
  let address = hostname;
  let lookups = 0;
  // Where Node hands names over to the system: every connect that isn't told otherwise asks here.
  const { lookup } = dns;
  t.mock.method(dns, 'lookup', (name: string, options: dns.LookupAllOptions, done: (...args: unknown[]) => void) => {
    if (name !== 'engine.test') return (lookup as (...args: unknown[]) => void)(name, options, done);
    lookups++;
    return process.nextTick(() => (options.all ? done(null, [{ address, family: 4 }]) : done(null, address, 4)));
  });
  const router = await startTestRouter(t, { workerUrls: [`http://engine.test:${port}`] });
  const client = await connectClient(t, router.url);
  client.write(GENERATE);
  const asked = await before.next();
  equal(asked.head.get('host'), `engine.test:${port}`);
  asked.beginStream();
  asked.connection.write(chunk('data: 1\n\n'));
  await client.read('data: 1\n\n');

  address = '127.0.0.2';
  equal((await send(t, router.url, GENERATE)).text, '"new"');
  asked.connection.write(`${chunk('data: 2\n\n')}0\r\n\r\n`);
  await client.read('data: 2\n\n');
  await client.read('0\r\n\r\n');
  deepEqual([before.requests.length, after.requests.length, lookups], [1, 1, 2]);
  // The old address's connection is no longer needed: it may idle, but what is opened goes to the new one.
  before.kill();
  for (let i = 0; i < 3; i++) equal((await send(t, router.url, GENERATE)).text, '"new"');
  await untilQuiet(router, []);
});

test('F29 cache_aware: an engine restarted under its URL has seen nothing, and sessions are placed anew', async (t) => {
  const first = await startEngine(t, { onRequest: well('0') });
  const second = await startEngine(t, { onRequest: well('1') });
  const router = await startTestRouter(t, {
    ...WATCHED,
    policy: 'cache_aware',
    workerUrls: [first.url, second.url],
  });
  await until('both are known', () => router.fleet.workers.every(({ isHealthy }) => isHealthy));
  const blocks = async (): Promise<number> => {
    const { policies } = (await (await fetch(`${router.url}/policies`)).json()) as {
      policies: { state: { byWorker: Record<string, number> } }[];
    };
    return policies[0]!.state.byWorker[first.url]!;
  };
  const asker = await connectAsker(t, router);
  for (let i = 0; i < 8; i++) await asker.who(post('/v1/completions', { prompt: `${i} `.repeat(400) }));
  ok((await blocks()) > 0);
  first.kill();
  await until('it is out', () => router.fleet.eligible.length === 1);
  const restarted = await startInPlaceOf(t, first, { onRequest: well('0') });
  await until('it is back', () => router.fleet.eligible.length === 2);
  equal(await blocks(), 0, 'the new process has none of the prompts of the old one');
  equal(restarted.requests.length, 0);
  await untilQuiet(router, [second, restarted]);
});

test('F29 kv_aware: the same, as soon as the restarted engine tells of its cache again', async (t) => {
  const publisher = await KvPublisher.start(t);
  const { endpoint } = publisher;
  const engine = await startEngine(t, { onRequest: well('0') });
  const other = await startEngine(t, { onRequest: well('1') });
  const router = await startTestRouter(t, {
    policy: 'kv_aware',
    workerUrls: [other.url, engine.url],
    kvEventEndpoints: [`${engine.url}=${endpoint}`],
  });
  await publisher.subscribed();
  const prompt = Array.from({ length: 64 }, (_, i) => i);
  const block = { type: 'BlockStored', parent_block_hash: null, block_size: 16, lora_id: null, medium: 'GPU' };
  await publisher.tell({ ...block, block_hashes: [1, 2, 3, 4], token_ids: prompt });
  const asker = await connectAsker(t, router);
  const who = (): Promise<number> => asker.who(post('/v1/completions', { prompt }));
  const bothOf = async (): Promise<number[]> => [await who(), await who()].toSorted((a, b) => a - b);
  await until('its cache is known', async () => (await bothOf()).join() === '0,0');
  publisher.stop();
  const again = await KvPublisher.start(t, { endpoint, ts: 5_000 });
  await again.subscribed();
  await again.tell({ ...block, block_hashes: [9], token_ids: prompt.map((id) => id + 1_000).slice(0, 16) });
  await until('it is known to be empty', async () => (await bothOf()).join() === '0,1');
  await untilQuiet(router, [engine, other]);
});

test('F52 a worker that is removed while it streams: streams finish, nothing new comes', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  const streams = await Promise.all(
    Array.from({ length: 10 }, async () => {
      const client = await connectClient(t, router.url);
      client.write(GENERATE);
      return client;
    }),
  );
  await until('all are at the engine', () => engine.requests.length === 10);
  for (const asked of engine.requests) asked.beginStream();
  equal((await send(t, router.url, request('POST', `/remove_worker?url=${engine.url}`))).status, 200);
  equal((await send(t, router.url, HELLO)).status, 503);
  for (const asked of engine.requests) asked.connection.write(`${chunk('data: [DONE]\n\n')}0\r\n\r\n`);
  for (const client of streams) equal((await client.answer()).text, 'data: [DONE]\n\n');
  equal(engine.requests.length, 10);
  for (const connection of engine.connections) await connection.untilEnded();
  await untilQuiet(router, []);
});

test('F52 a worker that is removed by force: its streams are cut, never ended', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.beginStream() });
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  const client = await connectClient(t, router.url);
  client.write(GENERATE);
  await client.read('\r\n\r\n');
  equal((await send(t, router.url, request('POST', `/remove_worker?url=${engine.url}&force=true`))).status, 200);
  await client.untilEnded();
  equal(client.hasLastChunk, false);
  await engine.connections[0]!.untilEnded();
  await untilQuiet(router, []);
});

test('F52 a worker that is removed by force: a response that ends with its connection is truncated', async (t) => {
  const engine = await startEngine(t, {
    onRequest: ({ connection }) => connection.write('HTTP/1.1 200 OK\r\n\r\npart'),
  });
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  const client = await connectClient(t, router.url);
  client.write(GENERATE);
  await client.read('part');
  equal((await send(t, router.url, request('POST', `/remove_worker?url=${engine.url}&force=true`))).status, 200);
  equal(await client.untilEnded(), 'reset');
  await untilQuiet(router, []);
});

test('F52 a worker that is removed by force gets no request again, also not on a new connection', async (t) => {
  const [removed, other] = await Promise.all([
    startEngine(t, { onRequest: (asked) => asked.connection.requests.length === 1 && asked.answer('"first"') }),
    startEngine(t, { onRequest: well('"other"') }),
  ]);
  const router = await startTestRouter(t, { workerUrls: [removed.url] });
  const client = await connectClient(t, router.url);
  client.write(GENERATE);
  equal((await client.answer()).text, '"first"');
  client.write(GENERATE);
  await until('it is sent on the same connection', () => removed.connections[0]!.requests.length === 2);
  equal((await send(t, router.url, post('/add_worker', { url: other.url }))).status, 200);
  equal((await send(t, router.url, request('POST', `/remove_worker?url=${removed.url}&force=true`))).status, 200);
  equal((await client.answer()).text, '"other"');
  deepEqual([removed.requests.length, other.requests.length], [2, 1]);
  await untilQuiet(router, [other]);
});

/** A plugin that keeps the first body until `release` is called. */
function keeper() {
  const kept = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<Worker>();
  const plugin: Plugin = {
    name: 'keeper',
    async requestBody(_x, body, worker) {
      begun.resolve(worker);
      await kept.promise;
      return body;
    },
  };
  return { plugin, release: kept.resolve, begun: begun.promise };
}

for (const path of ['/generate', '/unknown']) {
  test(`F52 a worker that is removed by force before ${path} is sent to it gets no request`, async (t) => {
    const engines = await Promise.all([0, 1].map(() => startEngine(t, { onRequest: well() })));
    const { plugin, release, begun } = keeper();
    const workerUrls = engines.map(({ url }) => url);
    const router = await startTestRouter(t, { workerUrls }, { plugins: [plugin] });
    const answered = send(t, router.url, request('POST', path, '{"text":"x"}'));
    const { url } = await begun;
    equal((await send(t, router.url, request('POST', `/remove_worker?url=${url}&force=true`))).status, 200);
    release();
    equal((await answered).status, 200);
    for (const engine of engines) equal(engine.requests.length, engine.url === url ? 0 : 1);
    await untilQuiet(
      router,
      engines.filter((engine) => engine.url !== url),
    );
  });
}

for (const policy of ['sticky_least_loaded', 'cache_aware', 'rollout']) {
  test(`F53 ${policy}: a worker added under load gets work, and known sessions stay where they are`, async (t) => {
    const engines = await startEngines(t, 3);
    const [a, b, added] = engines as [Engine, Engine, Engine];
    const router = await startTestRouter(t, { workerUrls: [a.url, b.url], policy });
    const sessions = Array.from({ length: 40 }, (_, i) => i);
    const turn = (session: number, n: number): string =>
      post('/v1/completions', {
        prompt: `session ${session} says: ${`word${session} `.repeat(100 + 20 * n)}`,
        session_id: `s${session}`,
        max_tokens: 8,
      });
    const asker = await connectAsker(t, router);
    const homes = await asker.whoGets(sessions.map((session) => turn(session, 0)));
    let isDone = false;
    t.after(() => (isDone = true));
    const load = Promise.all(
      Array.from({ length: 4 }, async (_, i) => {
        const other = await connectAsker(t, router);
        for (let n = 0; !isDone; n++) await other.who(turn(1_000 + i * 1_000 + n, 0));
      }),
    );
    const response = await send(t, router.url, post('/add_worker', { url: added.url }));
    equal(response.status, 200);
    await until('the new one gets work', () => added.requests.length > 0);
    const moved = (await asker.whoGets(sessions.map((session) => turn(session, 1)))).filter(
      (home, i) => home !== homes[i],
    );
    isDone = true;
    await load;
    equal(moved.length, 0, `${moved.length} of ${sessions.length} known sessions moved`);
    await untilQuiet(router, engines);
  });
}

test('F54 1,000 workers are added and removed under load: every request is served', async (t) => {
  const engines = await startEngines(t, 2);
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url), policy: 'round_robin' });
  let isDone = false;
  t.after(() => (isDone = true));
  let sent = 0;
  const run = async (): Promise<void> => {
    const client = await connectClient(t, router.url);
    while (!isDone) {
      sent++;
      client.write(GENERATE);
      equal((await client.answer()).status, 200);
    }
  };
  const load = Promise.all(Array.from({ length: 4 }, run));
  const admin = await connectClient(t, router.url);
  // Ports 1 to 1,000 of an address where nobody listens; each is there for a moment only.
  for (let i = 1; i <= 1_000; i++) {
    for (const path of ['add_worker', 'remove_worker']) {
      admin.write(request('POST', `/${path}?url=http://127.0.0.77:${i}`));
      equal((await admin.answer()).status, 200);
    }
  }
  isDone = true;
  await load;
  ok(sent >= 20, `${sent} requests went by meanwhile`);
  equal(engines[0]!.requests.length + engines[1]!.requests.length, sent);
  equal(router.fleet.workers.length, 2);
  await untilQuiet(router, engines);
});

test('F59 two routers over one fleet, workers named in another order: a session gets the same engine', async (t) => {
  const engines = await startEngines(t, 5);
  const urls = engines.map(({ url }) => url);
  const options = { policy: 'consistent_hash' };
  const one = await startTestRouter(t, { ...options, workerUrls: urls });
  const other = await startTestRouter(t, { ...options, workerUrls: urls.toReversed() });
  const requests = Array.from({ length: 100 }, (_, i) => post('/generate', { text: 'x', session_id: `session-${i}` }));
  const homes = await (await connectAsker(t, one)).whoGets(requests);
  deepEqual(await (await connectAsker(t, other)).whoGets(requests.toReversed()), homes.toReversed());
  equal(new Set(homes).size, 5);
  equal(
    engines.reduce((sum, engine) => sum + engine.requests.length, 0),
    200,
  );
  await untilIdleBoth(one, other);
});

const untilIdleBoth = async (...routers: Parameters<typeof untilQuiet>[0][]): Promise<void> => {
  for (const router of routers) await untilQuiet(router, []);
};
