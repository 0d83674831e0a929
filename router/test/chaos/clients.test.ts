import { deepEqual, equal, ok } from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { type TestContext, test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { STREAM_HEAD, answer, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { policyModule } from '../harness/policy-module.ts';
import { HELLO, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { type Behaviour, startFaultScene, untilQuiet, well, whenRead } from './scene.ts';
import { often } from '../harness/often.ts';

const GENERATE = request('POST', '/generate', '{"text":"x"}');
const EVENT = chunk('data: 1\n\n');

/** One client whose request is at the only engine, which has said `begin`. */
async function asked(t: TestContext, begin: Behaviour, options = {}) {
  const scene = await startFaultScene(t, [whenRead(begin)], options);
  const client = await connectClient(t, scene.router.url);
  client.write(GENERATE);
  const { connection } = await scene.engines[0]!.next();
  return { ...scene, client, connection, load: () => scene.router.fleet.inFlight.reduce((sum, n) => sum + n) };
}

test('F30 a client that leaves while its request is held back: no engine ever sees it', async (t) => {
  const policy = policyModule(t, `() => ({ needs: 'nothing', choose: () => ({ hold: 'closed', maxMs: 60_000 }) })`);
  const scene = await startFaultScene(t, [well()], { policy });
  const client = await connectClient(t, scene.router.url);
  client.write(GENERATE);
  await until('it is held', async () => (await scene.metric('turnout_held_requests{reason="closed"}')) === 1);
  client.reset();
  await scene.untilQuiet();
  equal(await scene.metric('turnout_held_requests{reason="closed"}'), 0);
  equal(await scene.metric('turnout_requests_total{outcome="client_left"}'), 1);
  await fetch(`${scene.router.url}/policies`, {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: '{"policy":"round_robin"}',
  });
  equal((await send(t, scene.router.url, HELLO)).status, 200);
  deepEqual(
    scene.engines[0]!.requests.map(({ target }) => target),
    ['/hello'],
  );
});

for (const how of ['reset', 'destroy'] as const) {
  test(`F31 a client that leaves (${how}) before the first token: the engine sees it at once, its load is 0 again`, async (t) => {
    const { client, connection, load, ...scene } = await asked(t, () => {});
    equal(load(), 1);
    if (how === 'reset') client.reset();
    else client.socket.destroy();
    await connection.untilEnded();
    equal(load(), 0);
    deepEqual(scene.hits(), [1], 'nobody else gets its request');
    equal(await scene.metric('turnout_requests_total{outcome="client_left"}'), 1);
    await scene.untilQuiet();
  });

  test(`F32 a client that leaves (${how}) in the middle of a stream: the same`, async (t) => {
    const { client, connection, load, ...scene } = await asked(t, ({ connection }) =>
      connection.write(STREAM_HEAD + EVENT),
    );
    await client.read(EVENT);
    equal(load(), 1);
    if (how === 'reset') client.reset();
    else client.socket.destroy();
    await connection.untilEnded();
    equal(load(), 0);
    equal(await scene.metric('turnout_requests_total{outcome="client_left"}'), 1);
    await scene.untilQuiet();
  });
}

/** Connects, asks, reads until an event is here or not, and leaves. Bare sockets: there are thousands. */
async function leave(url: string, bytes: string, isAnswered: boolean): Promise<void> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  socket.write(bytes);
  await once(socket, isAnswered ? 'data' : 'connect');
  socket.resetAndDestroy();
}

const CYCLES = often(4_000, 10_000);

test(`F32 ${CYCLES} clients that leave: no socket, timer, session or count is left`, async (t) => {
  let seen = 0;
  let ended = 0;
  const engine = await startEngine(t, {
    onConnection: ({ ended: theEnd, socket }) =>
      void theEnd.then(() => {
        ended++;
        socket.destroy();
      }),
    onRequest: (asked) => {
      seen++;
      asked.connection.isRecording = false;
      if (asked.target === '/stream') asked.connection.write(STREAM_HEAD + EVENT);
      engine.requests.length = 0;
    },
  });
  const router = await startTestRouter(t, {
    workerUrls: [engine.url],
    policy: 'sticky_least_loaded',
    requestTimeoutSecs: 3_600,
  });
  const active = (): Record<string, number> => {
    const counts: Record<string, number> = {};
    for (const kind of process.getActiveResourcesInfo()) counts[kind] = (counts[kind] ?? 0) + 1;
    return counts;
  };
  const before = active();
  let sent = 0;
  const run = async (): Promise<void> => {
    while (sent < CYCLES) {
      const n = sent++;
      const isAnswered = n % 2 === 0;
      // A few sessions only, so that what is kept for each would show if it were kept per request.
      const body = JSON.stringify({ session_id: `s${n % 7}`, prompt: 'x'.repeat(n % 300) });
      await leave(router.url, request('POST', isAnswered ? '/stream' : '/silent', body), isAnswered);
    }
  };
  await Promise.all(Array.from({ length: 48 }, run));
  await untilQuiet(router, []);
  await until('every connection of the engine has ended', () => engine.openSockets === 0);
  equal(router.fleet.workers[0]!.pool.openCount, 0);
  await until('no client is left', async () =>
    (await (await fetch(router.metricsUrl)).text()).includes('turnout_client_connections 0\n'),
  );
  ok(seen >= CYCLES / 2, `${seen} requests reached the engine`);
  equal(ended >= seen, true, 'each connection of theirs has ended');
  const after = active();
  for (const kind of ['Timeout', 'TCPSocketWrap', 'Immediate']) {
    ok((after[kind] ?? 0) <= (before[kind] ?? 0) + 4, `${kind}: ${before[kind]} before, ${after[kind]} after`);
  }
  const policies = (await (await fetch(`${router.url}/policies`)).json()) as {
    policies: { state: { sessions: number } }[];
  };
  ok(policies.policies[0]!.state.sessions <= 7, JSON.stringify(policies));
});

test('F33 a client that half-closes after its request counts as left; the engine is stopped', async (t) => {
  const { client, connection, ...scene } = await asked(t, () => {});
  client.end();
  await connection.untilEnded();
  await client.untilEnded();
  equal(client.received.length, 0);
  equal(await scene.metric('turnout_requests_total{outcome="client_left"}'), 1);
  await scene.untilQuiet();
});

test('F33 --allow-half-close: it gets its answer', async (t) => {
  const { client, connection, ...scene } = await asked(t, () => {}, { allowHalfClose: true });
  client.end();
  connection.write(answer(200, 'late'));
  equal((await client.answer()).text, 'late');
  equal(await client.untilClosed(), 'end');
  equal(await scene.metric('turnout_requests_total{outcome="complete"}'), 1);
  await scene.untilQuiet();
});

test('F40 100 pipelined requests, and the client closes after 3 answers: the rest reaches no engine', async (t) => {
  const scene = await startFaultScene(t, [whenRead((each) => each.answer(JSON.stringify(each.target)))]);
  const client = await connectClient(t, scene.router.url);
  const [engine] = scene.engines;
  // The fourth is held back, so that the moment of leaving is the test's.
  engine!.onRequest = (each) => {
    if (each.target !== '/3') each.answer(JSON.stringify(each.target));
  };
  client.write(Array.from({ length: 100 }, (_, i) => request('GET', `/${i}`)).join(''));
  for (let i = 0; i < 3; i++) equal((await client.answer()).text, `"/${i}"`);
  await until('the fourth is at the engine', () => engine!.requests.length === 4);
  client.reset();
  await engine!.connections[0]!.untilEnded();
  await scene.untilQuiet();
  deepEqual(
    engine!.requests.map(({ target }) => target),
    ['/0', '/1', '/2', '/3'],
  );
  equal(await scene.metric('turnout_requests_total{outcome="client_left"}'), 1);
});

test('F41 a huge request and then tiny ones on one connection: order is kept, nothing is mixed up', async (t) => {
  const echo =
    (name: string): Behaviour =>
    (each) =>
      void each.payload().then((payload) => each.answer(`${name} ${each.target} ${payload.length} ${payload.at(-1)}`));
  const scene = await startFaultScene(t, [echo('a'), echo('b')]);
  const client = await connectClient(t, scene.router.url);
  for (let round = 0; round < 3; round++) {
    const huge = Buffer.alloc(20_000_000, 'h');
    client.write(`POST /huge HTTP/1.1\r\nhost: h\r\ncontent-length: ${huge.length}\r\n\r\n`);
    client.write(huge);
    // Pipelined right behind it, in the same flow of bytes.
    for (let i = 0; i < 20; i++) client.write(request('POST', `/tiny${i}`, String(i % 10)));
    const said = [(await client.answer('POST')).text];
    for (let i = 0; i < 20; i++) said.push((await client.answer()).text);
    deepEqual(
      said.map((text) => text.slice(2)),
      [`/huge ${huge.length} 104`, ...Array.from({ length: 20 }, (_, i) => `/tiny${i} 1 ${48 + (i % 10)}`)],
    );
  }
  equal(client.unread, '');
  equal(
    scene.hits().reduce((sum, n) => sum + n),
    63,
  );
  await scene.untilQuiet();
});

test('F41 tiny requests on other connections go by while a huge one is on its way', async (t) => {
  const scene = await startFaultScene(t, [well('"first"'), well('"second"')]);
  const client = await connectClient(t, scene.router.url);
  client.write('POST /huge HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\n');
  client.write(Buffer.alloc(500_000));
  await until('the huge one is under way', () => scene.router.pipeline.inFlight.size === 1);
  for (let i = 0; i < 10; i++) equal((await send(t, scene.router.url, HELLO)).status, 200);
  client.write(Buffer.alloc(500_000));
  equal((await client.answer()).status, 200);
  equal(
    scene.hits().reduce((sum, n) => sum + n),
    11,
  );
  await scene.untilQuiet();
});
