import { deepEqual, equal, match, notEqual, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { deadUrl } from '../harness/engine.ts';
import { stoppedClock } from '../harness/fake-time.ts';
import { post } from '../harness/fleet.ts';
import { beginsStream, blamed } from '../harness/pair-failures.ts';
import { chunk } from '../harness/message.ts';
import { untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import type { Plugin } from '../../src/plugin.ts';
import { LARGE_BYTES } from '../../src/threads/sizes.ts';
import { connectors, startVllmPairs } from './scene.ts';

const ask = (stream = false) => post('/v1/completions', { prompt: 'a', stream });

for (const connector of connectors) {
  for (const role of ['prefill', 'decode'] as const) {
    const other = role === 'prefill' ? 'decode' : 'prefill';
    for (const stream of [false, true]) {
      test(`${connector}: a ${role} engine that dies before the answer: another one, a new transfer, and only it is blamed (${stream ? 'stream' : 'whole'})`, async (t) => {
        const { world, router } = await startVllmPairs(t, connector, role === 'prefill' ? [2, 1] : [1, 2]);
        const [bad, good] = world[role];
        bad!.instead = () => 'reset';
        const got = await send(t, router.url, ask(stream));
        equal(got.status, 200);
        match(got.text, /decode/);
        deepEqual([bad!.seen.length, good!.seen.length], [1, 1]);
        if (connector === 'mooncake') notEqual(bad!.seen[0]!.params, good!.seen[0]!.params);
        deepEqual(await blamed(t, router), [`${bad!.engine.url} 1`]);
        await untilIdle(router);
      });
    }

    test(`${connector}: a ${role} engine's 503 is tried elsewhere, its 400 is the answer, untouched`, async (t) => {
      const { world, router } = await startVllmPairs(t, connector, role === 'prefill' ? [2, 1] : [1, 2]);
      world[role][0]!.instead = () => ({ status: 503, body: '{"busy":1}' });
      equal((await send(t, router.url, ask())).status, 200);
      for (const half of world[role]) half.instead = () => ({ status: 400, body: '{"bad": 12345678901234567890}' });
      const got = await send(t, router.url, ask(true));
      deepEqual([got.status, got.text], [400, '{"bad": 12345678901234567890}']);
      match(got.get('x-engine')!, new RegExp(role));
      await untilIdle(router);
    });

    if (role === 'decode') {
      test(`${connector}: a stream whose first event is an error is tried elsewhere; where nobody does better it is the answer, untouched`, async (t) => {
        const { world, router } = await startVllmPairs(t, connector, [1, 2], { retryMaxRetries: 1 });
        const [bad, good] = world.decode;
        const event = 'data: {"error": {"message": "Internal server error", "code": 500}}\n\n';
        const fails: typeof beginsStream = ({ request }) => {
          request.beginStream();
          request.connection.write(`${chunk(event)}${chunk('data: [DONE]\n\n')}0\r\n\r\n`);
          return 'nothing';
        };
        bad!.instead = fails;
        const got = await send(t, router.url, ask(true));
        equal(got.status, 200);
        match(got.text, /decode/);
        deepEqual([bad!.seen.length, good!.seen.length], [1, 1]);
        deepEqual(await blamed(t, router), [`${bad!.engine.url} 1`]);
        good!.instead = fails;
        const failed = await send(t, router.url, ask(true));
        deepEqual([failed.status, failed.text], [200, `${event}data: [DONE]\n\n`]);
        await untilIdle(router);
      });
    }

    test(`${connector}: nobody listens at a ${role} engine: another one`, async (t) => {
      const { world, router } = await startVllmPairs(t, connector, [1, 1]);
      const dead = await deadUrl();
      const port = connector === 'mooncake' && role === 'prefill' ? { bootstrap_port: Number(new URL(dead).port) } : {};
      equal((await send(t, router.url, post('/workers', { url: dead, worker_type: role, ...port }))).status, 202);
      for (let i = 0; i < 4; i++) equal((await send(t, router.url, ask())).status, 200);
      equal(world[other][0]!.seen.length >= 4, true);
      match((await blamed(t, router)).join(), new RegExp(`^${dead} [1-4]$`));
      await untilIdle(router);
    });

    test(`${connector}: a breaker takes out the ${role} engine that fails, and not its partner`, async (t) => {
      const options = { cbFailureThreshold: 2, cbTimeoutDurationSecs: 600 };
      const { world, router } = await startVllmPairs(t, connector, role === 'prefill' ? [2, 1] : [1, 2], options);
      world[role][0]!.instead = () => ({ status: 500, body: '{}' });
      for (let i = 0; i < 6; i++) equal((await send(t, router.url, ask())).status, 200);
      notEqual(router.fleet.get(world[role][0]!.engine.url)!.reasons, 0);
      equal(router.fleet.get(world[other][0]!.engine.url)!.reasons, 0);
      await untilIdle(router);
    });
  }

  test(`${connector}: the decode engine dies in its stream: the client is cut, the prefill engine is not blamed`, async (t) => {
    const { world, router } = await startVllmPairs(t, connector, [1, 1]);
    world.prefill[0]!.instead = ({ request }) => {
      world.kept.add('{"k":3}');
      request.answer('{"kv_transfer_params":{"k":3}}');
      return 'nothing';
    };
    world.decode[0]!.instead = beginsStream;
    const client = await connectClient(t, router.url);
    client.write(ask(true));
    await client.read('data: 1\n\n');
    world.decode[0]!.seen[0]!.request.connection.reset();
    await until('the client is cut', () => client.hasEnded);
    match(client.unread, /\{"error":.*closed the connection/);
    deepEqual(await blamed(t, router), [`${world.decode[0]!.engine.url} 1`]);
    deepEqual([world.prefill[0]!.seen.length, world.decode[0]!.seen.length], [1, 1]);
    await untilIdle(router);
  });

  test(`${connector}: the client leaves: whoever works for it sees its connection close`, async (t) => {
    const { world, router } = await startVllmPairs(t, connector, [1, 1]);
    for (const half of [...world.prefill, ...world.decode]) half.instead = () => 'nothing';
    const client = await connectClient(t, router.url);
    client.write(ask());
    const halves = connector === 'nixl' ? [world.prefill[0]!] : [world.prefill[0]!, world.decode[0]!];
    await until('they have it', () => halves.every(({ seen }) => seen.length === 1));
    client.reset();
    await until('they are let go', () => halves.every(({ seen }) => seen[0]!.request.connection.hasEnded));
    await untilIdle(router);
    equal(world.decode[0]!.seen.length, halves.length - 1);
  });

  test(`${connector}: no prefill engine: 503 in words`, async (t) => {
    const { world, router } = await startVllmPairs(t, connector, [1, 1]);
    router.fleet.remove(router.fleet.get(world.prefill[0]!.engine.url)!);
    const got = await send(t, router.url, ask());
    deepEqual([got.status, got.get('x-turnout-error')], [503, 'no_available_workers']);
    match(got.text, /none for prefill is registered/);
    equal(world.decode[0]!.seen.length, 0);
  });
}

test('nixl: the client leaves while the decode engine works', async (t) => {
  const { world, router } = await startVllmPairs(t, 'nixl', [1, 1]);
  world.decode[0]!.instead = () => 'nothing';
  const client = await connectClient(t, router.url);
  client.write(ask());
  await until('the decode engine has it', () => world.decode[0]!.seen.length === 1);
  client.reset();
  await until('it is let go', () => world.decode[0]!.seen[0]!.request.connection.hasEnded);
  await untilIdle(router);
});

test('nixl: a prefill engine that hands nothing over: another one, and never the decode engine', async (t) => {
  const { world, router } = await startVllmPairs(t, 'nixl', [2, 1]);
  world.prefill[0]!.instead = () => ({ status: 200, body: '{"choices":[],"kv_transfer_params":null}' });
  equal((await send(t, router.url, ask())).status, 200);
  equal(world.decode[0]!.seen.length, 1);
  deepEqual(await blamed(t, router), [`${world.prefill[0]!.engine.url} 1`]);
  world.prefill[1]!.instead = world.prefill[0]!.instead;
  const got = await send(t, router.url, ask());
  deepEqual([got.status, got.get('x-turnout-error')], [502, 'upstream_bad_answer']);
  match(got.text, /kv_transfer_params/);
  equal(world.decode[0]!.seen.length, 1);
  await untilIdle(router);
});

test('nixl: a request of every size around the limit of threads is whole again for the next decode engine', async (t) => {
  const { world, router } = await startVllmPairs(t, 'nixl', [1, 2]);
  const start = '{"model":"m","prompt":"';
  for (const bytes of [LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1]) {
    let isFirst = true;
    for (const half of world.decode)
      half.instead = () => {
        if (!isFirst) return null;
        isFirst = false;
        return { status: 503, body: '{"busy":1}' };
      };
    // One part that fills its memory, as a read of a client's socket can be.
    const body = Buffer.allocUnsafeSlow(bytes).fill('a');
    body.write(start);
    body.write('"}', bytes - 2);
    equal((await router.dispatch({ path: '/v1/completions', body })).status, 200);
    const asked = [...world.prefill, ...world.decode].flatMap(({ seen }) => seen.splice(0));
    // Both engines of two pairs.
    const promptBytes = bytes - start.length - 2;
    deepEqual(
      asked.map((each) => String(each.body['prompt']).length),
      Array(4).fill(promptBytes),
    );
  }
  await untilIdle(router);
});

test('nixl: a prefill engine that dies in its answer: another one', async (t) => {
  const { world, router } = await startVllmPairs(t, 'nixl', [2, 1]);
  world.prefill[0]!.instead = ({ request }) => {
    request.connection.write('HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{"kv_transfer_params":{"k":1}');
    setImmediate(() => request.connection.reset());
    return 'nothing';
  };
  equal((await send(t, router.url, ask())).status, 200);
  equal(world.decode[0]!.seen.length, 1);
  await untilIdle(router);
});

test('nixl: a kept-alive connection that the decode engine has closed costs no second prefill', async (t) => {
  stoppedClock(t);
  const { world, router } = await startVllmPairs(t, 'nixl', [1, 1]);
  equal((await send(t, router.url, ask())).status, 200);
  const [connection] = world.decode[0]!.engine.connections;
  // It closes as the request comes, as an engine does whose idle time is over.
  let isFirst = true;
  world.decode[0]!.engine.onRequest = ((next) => (asked) => {
    if (asked.connection !== connection || !isFirst) return next!(asked);
    isFirst = false;
    asked.connection.reset();
  })(world.decode[0]!.engine.onRequest);
  equal((await send(t, router.url, ask())).status, 200);
  ok(!isFirst, 'the first connection was used again');
  equal(world.prefill[0]!.seen.length, 2);
  deepEqual(await blamed(t, router), []);
  await untilIdle(router);
});

test('mooncake: a prefill engine whose bootstrap server is silent is passed over, and asked again', async (t) => {
  const { world, router } = await startVllmPairs(t, 'mooncake', [2, 1], { prefill: [] });
  const [good, bad] = world.prefill;
  const dead = Number(new URL(await deadUrl()).port);
  for (const [half, port] of [
    [good!, good!.bootstrapPort],
    [bad!, dead],
  ] as const) {
    const added = post('/workers', { url: half.engine.url, worker_type: 'prefill', bootstrap_port: port });
    equal((await send(t, router.url, added)).status, 202);
  }
  for (let i = 0; i < 4; i++) equal((await send(t, router.url, ask())).status, 200);
  deepEqual([good!.seen.length, bad!.seen.length], [4, 0]);
  await untilIdle(router);
});

test('--request-timeout-secs ends whatever is under way', async (t) => {
  const { world, router } = await startVllmPairs(t, 'nixl', [1, 1], { requestTimeoutSecs: 0.2 });
  world.prefill[0]!.instead = () => 'nothing';
  equal((await send(t, router.url, ask())).status, 504);
  // On a busy machine the time may be over before the engine has read its request.
  await until('it is let go', () => world.prefill[0]!.seen.every(({ request: { connection } }) => connection.hasEnded));
  equal(world.decode[0]!.seen.length, 0);
  await untilIdle(router);
});

for (const role of ['prefill', 'decode'] as const) {
  for (const how of ['removed by force', 'lost'] as const) {
    test(`nixl: a ${role} engine that is ${how} before it gets its request gets none`, async (t) => {
      const { promise: kept, resolve: release } = Promise.withResolvers<void>();
      const begun = Promise.withResolvers<void>();
      const plugin: Plugin = {
        name: 'keeper',
        async requestBody(_x, body) {
          begun.resolve();
          await kept;
          return body;
        },
      };
      const { world, router } = await startVllmPairs(t, 'nixl', [2, 2], {}, { plugins: [plugin] });
      const answered = send(t, router.url, ask());
      await begun.promise;
      const [x] = router.pipeline.inFlight;
      const { worker } = x!.placement!.legs.find((leg) => leg.role === role)!;
      if (how === 'lost') x!.activity!.workerLost!(worker, 'its weights are not known');
      else equal((await send(t, router.url, request('DELETE', `/workers/${worker.id}?force=true`))).status, 202);
      release();
      equal((await answered).status, 200);
      const seen = world[role].map(({ engine, seen: { length } }) => [engine.url, length] as const);
      for (const [url, count] of seen) equal(count, url === worker.url ? 0 : 1);
      await untilIdle(router);
    });
  }
}
