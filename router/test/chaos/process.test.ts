import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { type Socket, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { type Client, connectClient, request, send } from '../harness/client.ts';
import { deadUrl, startEngine } from '../harness/engine.ts';
import { connectAsker, post, startEngines } from '../harness/fleet.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { turnout } from '../cli/turnout.ts';
import { needsProc, preloaded, startRouterProcess } from './router-process.ts';
import { untilQuiet, well } from './scene.ts';

const directory = mkdtempSync(join(tmpdir(), 'turnout-faults-'));
after(() => rmSync(directory, { recursive: true, force: true }));

const GENERATE = request('POST', '/generate', '{"text":"x"}');
const READINESS = request('GET', '/readiness');

test('F39 more clients than the process may have files: it survives, and serves when they are gone', async (t) => {
  const engine = await startEngine(t, { onRequest: well() });
  const router = await startRouterProcess(t, [engine.url], [], { shell: 'ulimit -n 64' });
  const early = await connectClient(t, router.url);
  early.write(GENERATE);
  equal((await early.answer()).status, 200);
  const { hostname, port } = new URL(router.url);
  const crowd: Socket[] = Array.from({ length: 200 }, () => {
    const socket = connect(Number(port), hostname);
    socket.on('error', () => {});
    t.after(() => socket.destroy());
    socket.write(HELLO.slice(0, -2));
    return socket;
  });
  await Promise.all(crowd.map((socket) => Promise.race([once(socket, 'connect'), once(socket, 'close')])));
  // Whom it serves already, it serves on: over the connection that it has.
  for (let i = 0; i < 3; i++) {
    early.write(GENERATE);
    const { status } = await early.answer();
    ok(status === 200 || status === 503, `${status}`);
  }
  for (const socket of crowd) socket.resetAndDestroy();
  await until('it serves new clients', async () => {
    const client = await connectClient(t, router.url);
    client.write(GENERATE);
    return (await client.answerOrNone())?.status === 200;
  });
  equal(router.child.exitCode, null);
  ok(engine.requests.length >= 2);
  ok(
    engine.requests.every(({ target }) => target === '/generate'),
    'half a request reaches nobody',
  );
  await router.untilIdle();
});

test('F47 SIGTERM with 200 streams: no new request, one that has begun is served, every stream finishes, exit 0', async (t) => {
  const STREAMS = 200;
  const engines = await Promise.all(Array.from({ length: 2 }, () => startEngine(t, {})));
  const router = await startRouterProcess(
    t,
    engines.map(({ url }) => url),
    ['--shutdown-grace-period-secs', '60'],
  );
  const streams: Client[] = [];
  for (let i = 0; i < STREAMS; i++) {
    const client = await connectClient(t, router.url);
    client.write(GENERATE);
    streams.push(client);
  }
  const requests = () => engines.flatMap((engine) => engine.requests);
  await until('all are at the engines', () => requests().length === STREAMS);
  for (const asked of requests()) {
    asked.beginStream();
    asked.connection.write(chunk('data: 1\n\n'));
  }
  for (const client of streams) await client.read('data: 1\n\n');
  const idle = await connectClient(t, router.url);
  const asking = await connectClient(t, router.url);
  asking.write(READINESS.slice(0, -2));
  router.child.kill('SIGTERM');
  await idle.untilEnded();
  asking.write(READINESS.slice(-2));
  const readiness = await asking.answer();
  deepEqual([readiness.status, readiness.get('connection')], [503, 'close'], 'not ready');
  await connectClient(t, router.url).then(
    () => Promise.reject(new Error('it still listens')),
    () => {},
  );
  for (const asked of requests()) {
    asked.connection.write(chunk('data: 2\n\n'));
    asked.connection.write(`${chunk('data: [DONE]\n\n')}0\r\n\r\n`);
  }
  for (const client of streams) {
    await client.read('data: 2\n\n');
    await client.read('data: [DONE]\n\n');
    await client.read('0\r\n\r\n');
    await client.untilEnded();
  }
  equal(await router.ended, 0);
  equal(requests().length, STREAMS);
  equal(
    engines.reduce((sum, engine) => sum + engine.openConnections, 0),
    0,
  );
});

test('F48 policy and engines change under load: no failure, and sessions keep their engine', async (t) => {
  const engines = await startEngines(t, 4);
  const urls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, { workerUrls: urls.slice(0, 3), policy: 'sticky_least_loaded' });
  const sessions = Array.from({ length: 30 }, (_, i) => post('/generate', { text: 'x', session_id: `s${i}` }));
  const asker = await connectAsker(t, router);
  const homes = await asker.whoGets(sessions);
  let isDone = false;
  t.after(() => (isDone = true));
  let sent = 0;
  const load = Promise.all(
    Array.from({ length: 6 }, async () => {
      const other = await connectAsker(t, router);
      for (; !isDone; sent++) await other.who(GENERATE);
    }),
  );
  const admin = (method: string, path: string, body: unknown) =>
    fetch(router.url + path, {
      method,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    }).then(({ ok: isOk }) => ok(isOk, path));
  for (let round = 0; round < 5; round++) {
    const from = sent;
    await admin('PUT', '/policies', { policy: 'round_robin', model: `m${round}` });
    await admin('POST', '/add_worker', { url: urls[3] });
    await until('some go by', () => sent > from + 30);
    await admin('POST', '/remove_worker', { url: urls[3] });
  }
  deepEqual(await asker.whoGets(sessions), homes);
  isDone = true;
  await load;
  ok(engines[3]!.requests.length > 0, 'the fourth engine got work while it was there');
  equal(
    engines.reduce((sum, engine) => sum + engine.requests.length, 0),
    sent + 2 * sessions.length,
  );
  await untilQuiet(router, engines.slice(0, 3));
});

for (const policy of ['consistent_hash', 'sticky_least_loaded']) {
  test(`F51 ${policy}: killed under load and started again, no live session gets a wrong engine`, async (t) => {
    const engines = await startEngines(t, 3);
    const dataDir = join(directory, policy);
    const options = ['--policy', policy, '--data-dir', dataDir];
    const urls = engines.map(({ url }) => url);
    const first = await startRouterProcess(t, urls, options);
    const sessions = Array.from({ length: 60 }, (_, i) => post('/generate', { text: 'x', session_id: `s${i}` }));
    const homes = await (await connectAsker(t, first)).whoGets(sessions);
    const file = join(dataDir, 'sticky-sessions.jsonl');
    if (policy === 'sticky_least_loaded')
      await until('they are written down', () => readFileSync(file, 'utf8').split('\n').length > sessions.length);
    // Turns of other sessions are being written down when it dies.
    let told = 0;
    const load = Promise.allSettled(
      Array.from({ length: 4 }, async (_, i) => {
        const asker = await connectAsker(t, first);
        for (;;) await asker.who(post('/generate', { session_id: `other-${i}-${told++}`, text: 'x' }));
      }),
    );
    await until('it is under load', () => told > 400);
    first.child.kill('SIGKILL');
    await first.ended;
    await load;
    for (const engine of engines) await until('the engine is let go', () => engine.openConnections === 0);
    const second = await startRouterProcess(t, urls, options);
    deepEqual(await (await connectAsker(t, second)).whoGets(sessions.toReversed()), homes.toReversed());
    equal(new Set(homes).size, 3);
    await second.untilIdle();
  });
}

test('F55 the log goes to a full disk: requests are served, and no exit', { skip: needsProc }, async (t) => {
  const engine = await startEngine(t, { onRequest: well() });
  // What it would say, its address among it, can't be read: the port is chosen here.
  const url = await deadUrl();
  const { hostname, port } = new URL(url);
  const ports = ['--host', hostname, '--port', port, '--prometheus-port', '0', '--log-level', 'debug'];
  const run = turnout(t, ['serve', ...ports, '--worker-urls', engine.url], {}, 'exec > /dev/full');
  await until('it listens', () =>
    connectClient(t, url).then(
      () => true,
      () => run.child.exitCode !== null,
    ),
  );
  for (let i = 0; i < 50; i++) equal((await send(t, url, GENERATE)).status, 200, run.output());
  equal(engine.requests.length, 50);
  run.child.kill('SIGTERM');
  equal(await run.ended, 0);
});

/** A wall clock that SIGUSR2 sets an hour forward and, at its next coming, two hours back. */
const JUMPING = `
  const { now } = Date;
  const jumps = [3_600_000, -7_200_000];
  let offset = 0;
  Date.now = () => now.call(Date) + offset;
  process.on('SIGUSR2', () => {
    offset += jumps.shift() ?? 0;
    console.log('jumped to ' + offset + '.');
  });`;

test('F56 the wall clock jumps an hour forward and two back: no timer takes note', async (t) => {
  const engines = await startEngines(t, 3);
  const [first] = engines;
  const options = ['--request-timeout-secs', '300', '--session-ttl-secs', '1200', '--policy', 'sticky_least_loaded'];
  const router = await startRouterProcess(
    t,
    engines.map(({ url }) => url),
    [...options, '--health-check-interval-secs', '0.05'],
    { env: preloaded(JUMPING) },
  );
  await until('all are known', async () => (await fetch(`${router.url}/readiness`)).status === 200);
  const asker = await connectAsker(t, router);
  const sessions = Array.from({ length: 12 }, (_, i) => post('/generate', { text: 'x', session_id: `s${i}` }));
  const homes = await asker.whoGets(sessions);
  for (const engine of engines) {
    engine.onRequest = (asked) => {
      if (asked.target === '/stream') asked.beginStream();
      else asked.answer(String(engines.indexOf(engine)));
    };
  }
  const streaming = await connectClient(t, router.url);
  streaming.write(request('POST', '/stream', '{"session_id":"s0"}'));
  await streaming.read('\r\n\r\n');
  const { connection } = engines[homes[0]!]!.requests.at(-1)!;
  for (const offset of [3_600_000, -3_600_000]) {
    const checks = first!.questions.length;
    const startMs = performance.now();
    router.child.kill('SIGUSR2');
    await router.says(new RegExp(`jumped to ${offset}\\.`));
    // Health checks go on at their pace: neither stopped nor all at once.
    await until('health is checked on', () => first!.questions.length >= checks + 4);
    const most = 10 + (performance.now() - startMs) / 40;
    ok(first!.questions.length - checks < most, `${first!.questions.length - checks} checks, ${most} at most`);
    deepEqual(await asker.whoGets(sessions), homes, 'sessions are as old as they were');
    equal(await router.metric('turnout_requests_in_flight'), 1, 'the stream is');
  }
  connection.write(`${chunk('data: [DONE]\n\n')}0\r\n\r\n`);
  await streaming.read('0\r\n\r\n');
  equal(await router.metric('turnout_requests_total{outcome="complete"}'), 12 * 3 + 1);
  await router.untilIdle();
});

test('F57 scrapers that hang: no effect', async (t) => {
  const engine = await startEngine(t, { onRequest: well() });
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  const hanging: Client[] = [];
  for (const url of [router.metricsUrl, router.url]) {
    const client = await connectClient(t, url);
    client.stall();
    for (let i = 0; i < 200; i++) client.write(request('GET', '/metrics'));
    hanging.push(client);
  }
  for (let i = 0; i < 50; i++) equal((await send(t, router.url, GENERATE)).status, 200);
  match(await (await fetch(router.metricsUrl)).text(), /turnout_requests_total\{outcome="complete"\} 50\n/);
  for (const client of hanging) client.reset();
  equal(engine.requests.length, 50);
  await untilQuiet(router, [engine]);
});

test('F57 many session ids: /metrics has no line more', async (t) => {
  // 10,000 of the matrix's 100,000: a line a session would show as well.
  const SESSIONS = 10_000;
  let seen = 0;
  const engine = await startEngine(t, {
    onRequest: (asked) => {
      seen++;
      asked.connection.isRecording = false;
      asked.answer('{}');
      engine.requests.length = 0;
      asked.connection.requests.length = 0;
    },
  });
  const router = await startTestRouter(t, { workerUrls: [engine.url], policy: 'sticky_least_loaded' });
  const page = async (): Promise<string> => (await fetch(router.metricsUrl)).text();
  const run = async (from: number, to: number): Promise<void> => {
    const client = await connectClient(t, router.url);
    for (let at = from; at < to; at += 50) {
      const ids = Array.from({ length: 50 }, (_, i) => `sess-${at + i}`);
      client.write(
        ids.map((id) => request('GET', '/turn', '', [`x-session-id: ${id}`, `x-user-id: u-${id}`])).join(''),
      );
      for (const id of ids) equal((await client.answer()).status, 200, id);
      client.parts.length = 0;
    }
  };
  await run(0, 100);
  const before = (await page()).split('\n').length;
  await Promise.all(Array.from({ length: 9 }, (_, i) => run(100 + i * 1_100, 100 + (i + 1) * 1_100)));
  const text = await page();
  equal(seen, SESSIONS);
  equal(text.split('\n').length, before);
  equal(text.includes('sess-'), false);
  await untilQuiet(router, []);
});
