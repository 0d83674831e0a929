import { deepEqual, equal, match, notEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, send } from '../harness/client.ts';
import { STREAM_HEAD, deadUrl } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { chunk } from '../harness/message.ts';
import { beginsStream, blamed } from '../harness/pair-failures.ts';
import { untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { startPairs } from './scene.ts';

const ask = (stream = false) => post('/generate', { text: 'a', stream });

for (const role of ['prefill', 'decode'] as const) {
  for (const stream of [false, true]) {
    test(`a ${role} engine that dies before the answer: another one, a new room, and only it is blamed (${stream ? 'stream' : 'whole'})`, async (t) => {
      const { world, router } = await startPairs(t, role === 'prefill' ? [2, 1] : [1, 2]);
      const [bad, good] = world[role];
      bad!.instead = () => 'reset';
      const got = await send(t, router.url, ask(stream));
      equal(got.status, 200);
      match(got.text, /decode/);
      const rooms = [bad!, good!].map(({ seen }) => seen[0]!.rooms[0]);
      notEqual(rooms[0], rooms[1]);
      // The other side of the failed pair was broken off.
      const twin = world[role === 'prefill' ? 'decode' : 'prefill'][0]!;
      equal(twin.seen.length, 2);
      await until('the broken pair is gone', () => twin.seen[0]!.request.connection.hasEnded);
      deepEqual(await blamed(t, router), [`${bad!.engine.url} 1`]);
      await untilIdle(router);
    });
  }

  test(`nobody listens at a ${role} engine: another one`, async (t) => {
    const dead = await deadUrl();
    const { world, router } = await startPairs(t, [1, 1], {}, {});
    const added = await send(t, router.url, post('/workers', { url: dead, worker_type: role }));
    equal(added.status, 202);
    for (let i = 0; i < 3; i++) equal((await send(t, router.url, ask())).status, 200);
    equal(world.decode[0]!.hasDied, false);
    match((await blamed(t, router)).join(), new RegExp(`^${dead} [1-3]$`));
    await untilIdle(router);
  });

  test(`a ${role} engine's 503 is tried elsewhere, its 400 is the answer, untouched`, async (t) => {
    const { world, router } = await startPairs(t, role === 'prefill' ? [2, 1] : [1, 2]);
    const [first] = world[role];
    first!.instead = () => ({ status: 503, body: '{"busy":1}' });
    equal((await send(t, router.url, ask())).status, 200);
    const twin = world[role === 'prefill' ? 'decode' : 'prefill'][0]!;
    // The twin never gets to answer: it waits for a partner that refused.
    for (const half of world[role]) half.instead = () => ({ status: 400, body: '{"bad": 12345678901234567890}' });
    const before = twin.seen.length;
    const got = await send(t, router.url, ask(true));
    deepEqual([got.status, got.text], [400, '{"bad": 12345678901234567890}']);
    match(got.get('x-engine')!, new RegExp(role));
    await until('the twin is broken off', () => twin.seen[before]?.request.connection.hasEnded === true);
    await untilIdle(router);
  });
}

// As SGLang 0.5.23 answers a prompt that is longer than the context.
const tooLong =
  'data: {"error":{"message":"too long","type":"invalid_request_error","code":400,"retryable":false}}\n\n';

test('a stream that begins with an error of the client is the answer, untouched; it is not retried, and no engine is blamed', async (t) => {
  const { world, router } = await startPairs(t, [2, 2], { cbFailureThreshold: 1 });
  const halves = [...world.prefill, ...world.decode];
  for (const half of halves) {
    half.instead = ({ request }) => {
      request.connection.write(`${STREAM_HEAD}${chunk(tooLong)}${chunk('data: [DONE]\n\n')}0\r\n\r\n`);
      return 'nothing';
    };
  }
  const got = await send(t, router.url, ask(true));
  deepEqual([got.status, got.text], [200, `${tooLong}data: [DONE]\n\n`]);
  equal(world.prefill.filter(({ seen }) => seen.length > 0).length, 1);
  await untilIdle(router);
  deepEqual(await blamed(t, router), []);
  for (const worker of router.fleet.workers) deepEqual(worker.reasonNames(), []);
});

for (const code of [422, 503]) {
  test(`a stream that begins with an error ${code}, which comes in two parts`, async (t) => {
    const { world, router } = await startPairs(t, [1, 1]);
    const decode = world.decode[0]!;
    const worker = router.fleet.get(decode.engine.url)!;
    const event = `data: {"error": {"message": "${'x'.repeat(3_000)}", "code": ${code}}}\n\n`;
    decode.instead = ({ request }) => {
      if (decode.seen.length > 1) return null;
      request.connection.write(STREAM_HEAD + chunk(event).slice(0, 2_000));
      void until('the router has read a part', () => worker.lastReadMs > 0).then(() =>
        request.connection.write(`${chunk(event).slice(2_000)}0\r\n\r\n`),
      );
      return 'nothing';
    };
    const got = await send(t, router.url, ask(true));
    if (code === 503) match(got.text, /decode0/);
    else equal(got.text, event);
    deepEqual(await blamed(t, router), code === 503 ? [`${decode.engine.url} 1`] : []);
    await untilIdle(router);
  });
}

// As SGLang 0.5.23 reports an abort of a request that waits for its KV cache, or for a partner.
const aborted = (more = '') =>
  `{"error":{"message":"Decode handshake failed for request 'r' with exception KVTransferError(bootstrap_room=7): Aborted by AbortReq."${more}}}`;
const asEvent = `data: ${aborted(',"code":500')}\n\n`;

for (const role of ['prefill', 'decode'] as const) {
  for (const stream of [false, true]) {
    test(`an abort at a ${role} engine before the transfer stays an abort, and no engine is blamed (${stream ? 'stream' : 'whole'})`, async (t) => {
      const { world, router } = await startPairs(t, [2, 2], { cbFailureThreshold: 1 });
      for (const half of [...world.prefill, ...world.decode]) half.instead = () => 'nothing';
      for (const half of world[role]) {
        half.instead = ({ request }) => {
          const { connection } = request;
          if (stream) connection.write(`${STREAM_HEAD}${chunk(asEvent)}0\r\n\r\n`);
          else {
            // Its head comes first, as from uvicorn.
            const worker = router.fleet.get(half.engine.url)!;
            connection.write(`HTTP/1.1 500 E\r\ncontent-length: ${aborted().length}\r\n\r\n`);
            void until('the router has read the head', () => worker.lastReadMs > 0).then(() =>
              connection.write(aborted()),
            );
          }
          return 'nothing';
        };
      }
      const got = await send(t, router.url, ask(stream));
      deepEqual([got.status, got.text], stream ? [200, asEvent] : [500, aborted()]);
      equal(world[role].filter(({ seen }) => seen.length > 0).length, 1);
      await untilIdle(router);
      deepEqual(await blamed(t, router), []);
      for (const worker of router.fleet.workers) deepEqual(worker.reasonNames(), []);
    });
  }
}

test('the only prefill engine is gone: 503 in words', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  world.prefill[0]!.engine.kill();
  const got = await send(t, router.url, ask());
  deepEqual([got.status, got.get('x-turnout-error')], [503, 'no_available_workers']);
  await untilIdle(router);
});

test('the decode engine dies in its stream: the client is cut, the prefill engine is not blamed', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  world.decode[0]!.instead = beginsStream;
  const client = await connectClient(t, router.url);
  client.write(ask(true));
  await client.read('data: 1\n\n');
  world.decode[0]!.seen[0]!.request.connection.reset();
  await until('the client is cut', () => client.hasEnded);
  match(client.unread, /\{"error":.*closed the connection/);
  deepEqual(await blamed(t, router), [`${world.decode[0]!.engine.url} 1`]);
  await until('the prefill engine is let go', () => world.prefill[0]!.seen[0]!.request.connection.hasEnded);
  await untilIdle(router);
});

test('the prefill engine dies after the first byte of the answer: the answer goes on', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  world.decode[0]!.instead = beginsStream;
  const client = await connectClient(t, router.url);
  client.write(ask(true));
  await client.read('data: 1\n\n');
  await until('the prefill engine has it', () => world.prefill[0]!.seen.length === 1);
  world.prefill[0]!.seen[0]!.request.connection.reset();
  const isBlamed = `${world.prefill[0]!.engine.url} 1`;
  await until('it is blamed, and it alone', async () => (await blamed(t, router)).join() === isBlamed);
  world.decode[0]!.seen[0]!.request.connection.write(`${chunk('data: 2\n\n')}0\r\n\r\n`);
  await client.read('data: 2\n\n');
  await untilIdle(router);
});

test('the client leaves: both engines see their connection close', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  for (const half of [...world.prefill, ...world.decode]) half.instead = () => 'nothing';
  const client = await connectClient(t, router.url);
  client.write(ask());
  await until('both have it', () => world.prefill[0]!.seen.length + world.decode[0]!.seen.length === 2);
  client.reset();
  await until('both are let go', () =>
    [world.prefill[0]!, world.decode[0]!].every(({ seen }) => seen[0]!.request.connection.hasEnded),
  );
  await untilIdle(router);
});

test('a breaker takes out the side that fails, and brings it back', async (t) => {
  const { world, router } = await startPairs(t, [2, 1], { cbFailureThreshold: 2, cbTimeoutDurationSecs: 0.5 });
  const [bad, good] = world.prefill;
  bad!.instead = () => ({ status: 500, body: '{}' });
  await until('it is taken out', async () => {
    equal((await send(t, router.url, ask())).status, 200);
    return router.fleet.get(bad!.engine.url)!.reasons !== 0;
  });
  equal(bad!.seen.length >= 2, true);
  equal(router.fleet.get(world.decode[0]!.engine.url)!.reasons, 0);
  bad!.instead = () => null;
  const served = bad!.seen.length;
  await until('it is tried again', async () => {
    await send(t, router.url, ask());
    return bad!.seen.length > served + 2;
  });
  equal(good!.seen.length > 0, true);
  await untilIdle(router);
});

test('the trial of a prefill engine ends with its part, also while the decode engine still generates', async (t) => {
  const { world, router } = await startPairs(t, [2, 1], { cbFailureThreshold: 1, cbTimeoutDurationSecs: 0.05 });
  const [sick] = world.prefill;
  const worker = router.fleet.get(sick!.engine.url)!;
  sick!.instead = () => ({ status: 500, body: '{}' });
  await until('it is ejected', async () => {
    equal((await send(t, router.url, ask())).status, 200);
    return sick!.seen.length > 0;
  });
  for (const half of world.prefill) half.instead = () => ({ status: 200, body: '{}' });
  world.decode[0]!.instead = beginsStream;
  await until('it may get a request', () => worker.isOnTrial);
  for (let i = 0; i < 4; i++) {
    const client = await connectClient(t, router.url);
    client.write(ask(true));
    await client.read('data: 1\n\n');
    await until('the prompt is computed', () => [...router.pipeline.inFlight].every(({ freed }) => freed !== null));
  }
  deepEqual([sick!.seen.length, worker.isOnTrial, worker.reasonNames()], [3, false, []]);
});

test('a decode engine that fails while its partner is silent: the partner is looked at too', async (t) => {
  const options = { disableHealthCheck: false, healthCheckIntervalSecs: 600, disableRetries: true };
  const { world, router } = await startPairs(t, [1, 1], options);
  await until('both are well', () => router.fleet.workers.every(({ isHealthy }) => isHealthy));
  world.prefill[0]!.instead = () => 'nothing';
  world.decode[0]!.instead = () => ({ status: 500, body: '{}' });
  const { questions } = world.prefill[0]!.engine;
  const before = questions.length;
  equal((await send(t, router.url, ask())).status, 500);
  await until('it was asked how it is', () => questions.slice(before).includes('/health'));
});

test('the only engine of a role stays in, however it fails', async (t) => {
  const { world, router } = await startPairs(t, [1, 3], { cbFailureThreshold: 2, disableRetries: true });
  world.prefill[0]!.instead = () => ({ status: 500, body: '{"own":1}' });
  for (let i = 0; i < 6; i++) equal((await send(t, router.url, ask())).text, '{"own":1}');
  equal(router.fleet.get(world.prefill[0]!.engine.url)!.reasons, 0);
  equal(router.fleet.eligible.length, 4);
});

test('a removed half gets nothing new and finishes what it has', async (t) => {
  const { world, router } = await startPairs(t, [2, 1]);
  const [leaving, stays] = world.prefill;
  leaving!.instead = () => 'nothing';
  world.decode[0]!.instead = () => 'nothing';
  const begun = send(t, router.url, ask());
  await until('a pair has it', () => leaving!.seen.length + world.decode[0]!.seen.length === 2);
  router.fleet.remove(router.fleet.get(leaving!.engine.url)!);
  world.decode[0]!.instead = () => null;
  for (let i = 0; i < 3; i++) equal((await send(t, router.url, ask())).status, 200);
  deepEqual([leaving!.seen.length, stays!.seen.length], [1, 3]);
  const [half, other] = [leaving!, world.decode[0]!].map(({ seen }) => seen[0]!.request);
  equal(half!.connection.hasEnded, false);
  half!.answer('{}');
  other!.answer('"whole"');
  equal((await begun).text, '"whole"');
  await untilIdle(router);
});

test('a prefill engine that is removed, and answers after the end of the exchange, is left without a connection', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  const [prefill, decode] = [world.prefill[0]!, world.decode[0]!];
  prefill.instead = () => 'nothing';
  decode.instead = () => ({ status: 200, body: '{"text":"x"}' });
  const client = await connectClient(t, router.url);
  client.write(ask());
  await until('prefill has it', () => prefill.seen.length === 1);
  equal((await client.answer('POST')).status, 200);
  await untilIdle(router);
  const worker = router.fleet.get(prefill.engine.url)!;
  router.fleet.remove(worker);
  const { request } = prefill.seen[0]!;
  equal(request.connection.hasEnded, false, 'it is let finish');
  request.answer('{"text":"y"}');
  await until('its connection is gone', () => request.connection.hasEnded);
  equal(worker.pool.openCount, 0);
});
