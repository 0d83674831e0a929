import { deepEqual, equal, match, rejects } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { STREAM_HEAD, answer, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { type Behaviour, metricOf, startFaultScene, untilQuiet, well, whenRead } from './scene.ts';

const GENERATE = request('POST', '/generate', '{"text":"x"}');

/** A first engine that misbehaves and a second one that is well; what the client gets, byte by byte. */
async function begun(t: TestContext, begin: Behaviour, options: RouterOptions = {}) {
  const scene = await startFaultScene(t, [whenRead(begin), well()], options);
  const client = await connectClient(t, scene.router.url);
  client.write(GENERATE);
  const asked = await scene.engines[0]!.next();
  return { ...scene, client, asked };
}

const PARTIAL_HEAD = 'HTTP/1.1 200 OK\r\nx-leak: 1\r\ncontent-';

test('F06 reset inside the head of the answer: 502, and nothing of that head leaks', async (t) => {
  const scene = await startFaultScene(t, [({ connection }) => void connection.writeAndReset(PARTIAL_HEAD)]);
  const got = await send(t, scene.router.url, GENERATE);
  equal(got.status, 502);
  deepEqual([got.get('x-leak'), got.text.includes('leak')], [undefined, false]);
  await scene.untilQuiet();
});

test('F06 an engine that has begun to answer did the work: no other engine gets the request', async (t) => {
  const scene = await startFaultScene(t, [({ connection }) => void connection.writeAndReset(PARTIAL_HEAD), well()]);
  equal((await send(t, scene.router.url, GENERATE)).status, 502);
  deepEqual(scene.hits(), [1, 0]);
  await scene.untilQuiet();
});

const CHUNKED = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';

for (const [name, head, seen, how] of [
  ['F07 reset inside a body of known length', 'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n', 'half', 'reset'],
  ['F08 end between two chunks', CHUNKED, chunk('one') + chunk('two'), 'end'],
  ['F09 reset inside a chunk of an event stream', STREAM_HEAD, '40\r\ndata: {"n":1}\n\ndata: {"n"', 'reset'],
] as const) {
  test(`${name}: never a complete-looking message, and no second engine`, async (t) => {
    const scene = await begun(t, ({ connection }) => connection.write(head + seen));
    const { client, asked } = scene;
    await client.read(seen);
    asked.connection[how]();
    await client.untilEnded();
    equal(client.unread, '', 'nothing is added to what the engine said');
    await rejects(client.answer('POST'), /the connection ended before/);
    deepEqual(scene.hits(), [1, 0]);
    equal(await scene.metric(`turnout_worker_cut_answers_total{worker="${scene.engines[0]!.url}"}`), 1);
    equal(await scene.metric('turnout_requests_total{outcome="cut"}'), 1);
    await scene.untilQuiet();
  });
}

test('F10 a head and then nothing, without a timer: it waits; the client leaves and frees it', async (t) => {
  const scene = await begun(t, (asked) => asked.beginStream());
  const { client, asked, router } = scene;
  await client.read('\r\n\r\n');
  // Other work goes by meanwhile.
  for (let i = 0; i < 20; i++) equal((await send(t, router.url, request('GET', '/health'))).status, 200);
  equal(router.pipeline.inFlight.size, 1);
  equal(asked.connection.hasEnded, false);
  client.reset();
  await asked.connection.untilEnded();
  await scene.untilQuiet();
});

for (const status of [413, 400]) {
  test(`F12 an engine answers ${status} in the middle of the upload and closes: the client gets to read it`, async (t) => {
    for (let round = 0; round < 5; round++) {
      const scene = await startFaultScene(t, [() => {}, well()]);
      const client = await connectClient(t, scene.router.url);
      client.write('POST /generate HTTP/1.1\r\nhost: h\r\ncontent-length: 6000000\r\n\r\n');
      const { connection } = await scene.engines[0]!.next();
      connection.stall();
      for (let i = 0; i < 60; i++) client.write(Buffer.alloc(100_000));
      await until('a part of it is on its way', () => client.socket.bytesWritten > 1_000_000);
      // With bytes unread: the system answers them with a reset.
      connection.socket.end(answer(status, 'too much for me', ['x-engine: 1']), () => connection.socket.destroy());
      const got = await client.answer();
      deepEqual([got.status, got.text, got.get('x-engine')], [status, 'too much for me', '1']);
      equal(await client.untilEnded(), 'end', 'the connection ends cleanly, though its request is not whole');
      deepEqual(scene.hits(), [1, 0]);
      await scene.untilQuiet();
    }
  });
}

for (const [what, bytes] of [
  ['two lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd'],
  ['a length and chunks', `HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`],
  ['a folded line', 'HTTP/1.1 200 OK\r\nx: a\r\n  b\r\ncontent-length: 0\r\n\r\n'],
  ['bare LF', 'HTTP/1.1 200 OK\ncontent-length: 0\n\n'],
  ['a NUL', 'HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 0\r\n\r\n'],
  ['an unasked 101', 'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'],
] as const) {
  test(`F17 a malformed head (${what}): 502, and the engine stays in`, async (t) => {
    const engine = await startEngine(t, {
      onRequest: (asked) => (engine.requests.length === 1 ? asked.connection.write(bytes) : asked.answer('"next"')),
    });
    const router = await startTestRouter(t, { workerUrls: [engine.url], disableHealthCheck: false });
    await until('it is known', () => router.fleet.workers[0]!.isHealthy);
    const got = await send(t, router.url, GENERATE);
    deepEqual([got.status, got.get('x-turnout-error')], [502, 'upstream_bad_answer']);
    await engine.connections[0]!.untilEnded();
    equal(router.fleet.eligible.length, 1);
    equal((await send(t, router.url, GENERATE)).text, '"next"');
    equal(engine.connections.filter(({ requests }) => requests.length === 1).length, 2, 'a connection each');
    await untilQuiet(router, [engine]);
  });
}

for (const [how, part] of [
  ['at once', 3_000],
  ['in small writes', 100],
] as const) {
  test(`F18 3,000 × 102 ${how}: the client gets the final answer, and only that`, async (t) => {
    const interim = 'HTTP/1.1 102 Processing\r\n\r\n';
    const scene = await startFaultScene(t, [
      ({ connection }) => {
        const more = (left: number): void => {
          if (left === 0) return connection.write(answer(200, 'final'));
          connection.socket.write(interim.repeat(part), () => setImmediate(more, left - part));
        };
        more(3_000);
      },
    ]);
    const client = await connectClient(t, scene.router.url);
    client.write(GENERATE);
    const got = await client.answer();
    deepEqual([got.status, got.text], [200, 'final']);
    equal(client.received.includes('Processing'), false);
    equal(client.unread, '');
    client.write(GENERATE);
    equal((await client.answer()).text, 'final');
    deepEqual(
      scene.engines[0]!.connections.map(({ requests }) => requests.length),
      [2],
    );
    await scene.untilQuiet();
  });
}

test('F18 a flood of 1xx without end: 502, the connection is let go', async (t) => {
  const engine = await startEngine(t, {
    onRequest: ({ connection }) => {
      const flood = (): void => {
        if (connection.socket.writable) connection.socket.write('HTTP/1.1 102 Processing\r\n\r\n'.repeat(200), flood);
      };
      flood();
    },
  });
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  const got = await send(t, router.url, GENERATE);
  equal(got.status, 502);
  match(got.text, /upstream_bad_answer|502/);
  await engine.connections[0]!.untilEnded();
  equal(engine.requests.length, 1);
  equal(await metricOf(router.metricsUrl, 'turnout_errors_total{code="upstream_bad_answer"}'), 1);
  await untilQuiet(router, [engine]);
});

test('F09 answers that engines cut short are counted, all of them together', async (t) => {
  const cut = whenRead(({ connection }) => void connection.socket.end(CHUNKED + chunk('one')));
  const scene = await startFaultScene(t, [cut, cut]);
  for (let i = 0; i < 4; i++) await rejects(send(t, scene.router.url, GENERATE), /the connection ended before/);
  deepEqual(scene.hits(), [2, 2]);
  equal(await scene.metric('turnout_upstream_truncated_total'), 4);
  await scene.untilQuiet();
});
