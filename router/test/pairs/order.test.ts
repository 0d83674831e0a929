import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, send } from '../harness/client.ts';
import { STREAM_HEAD } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { chunk } from '../harness/message.ts';
import { untilIdle } from '../harness/router.ts';
import { settled, until } from '../harness/within.ts';
import { startPairs } from './scene.ts';

for (const role of ['prefill', 'decode'] as const) {
  test(`a ${role} engine that sends the head of a stream and dies: another one`, async (t) => {
    const { world, router } = await startPairs(t, role === 'prefill' ? [2, 1] : [1, 2]);
    world[role][0]!.instead = ({ request }) => {
      request.beginStream();
      setImmediate(() => request.connection.reset());
      return 'nothing';
    };
    const got = await send(t, router.url, post('/generate', { text: 'a', stream: true }));
    deepEqual([got.status, /decode/.test(got.text)], [200, true]);
    equal(world[role][0]!.seen.length, 1);
    await untilIdle(router);
  });
}

test('both die: one other pair at most, then 502', async (t) => {
  const { world, router } = await startPairs(t, [3, 3]);
  for (const half of world.prefill) half.instead = () => 'reset';
  for (const half of world.decode) half.instead = () => 'nothing';
  const got = await send(t, router.url, post('/generate', { text: 'a' }));
  deepEqual([got.status, got.get('x-turnout-error')], [502, 'upstream_reset']);
  equal(world.prefill.filter(({ seen }) => seen.length > 0).length, 2);
  await untilIdle(router);
});

test('--disable-retries: the first failure is the last', async (t) => {
  const { world, router } = await startPairs(t, [2, 1], { disableRetries: true });
  world.prefill[0]!.instead = () => ({ status: 503, body: '{"busy":1}' });
  const got = await send(t, router.url, post('/generate', { text: 'a' }));
  deepEqual([got.status, got.text, got.get('x-engine')], [503, '{"busy":1}', 'prefill0']);
  await untilIdle(router);
});

test('an answer that needs the prefill engine’s waits for it, however long', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  for (const half of [...world.prefill, ...world.decode]) half.instead = () => 'nothing';
  const client = await connectClient(t, router.url);
  client.write(post('/generate', { text: 'a', return_logprob: true, stream: true }));
  await until('both have it', () => world.prefill[0]!.seen.length + world.decode[0]!.seen.length === 2);
  const decode = world.decode[0]!.seen[0]!.request;
  const event = (list: string) => `data: {"meta_info":{"input_token_logprobs":[${list}]}}\n\n`;
  decode.connection.write(STREAM_HEAD + chunk(event('')));
  // More than one read can hold.
  for (let i = 0; i < 50; i++) decode.connection.write(chunk(event('9'.repeat(9_000))));
  decode.connection.write('0\r\n\r\n');
  await until('the engine has sent a part', () => decode.connection.socket.bytesWritten > 1_000);
  equal(client.unread, '');
  world.prefill[0]!.seen[0]!.request.connection.write(`${STREAM_HEAD}${chunk(event('1,2'))}0\r\n\r\n`);
  const { text } = await client.answer();
  equal(text.split('\n\n').filter((each) => each.includes('[1,2')).length, 51);
  await untilIdle(router);
});

test('the prefill engine fails while the answer waits for it: another pair', async (t) => {
  const { world, router } = await startPairs(t, [2, 1]);
  world.says = (half) => `{"meta_info":{"input_token_logprobs":[${half === 'prefill' ? '1' : ''}]}}`;
  world.prefill[0]!.instead = () => 'nothing';
  let isFirst = true;
  world.decode[0]!.instead = ({ request }) => {
    if (!isFirst) return null;
    isFirst = false;
    request.answer('{"meta_info":{"input_token_logprobs":[]}}');
    const worker = router.fleet.get(world.decode[0]!.engine.url)!;
    void until('it waits', () => worker.lastReadMs > 0 && world.prefill[0]!.seen.length > 0).then(() =>
      world.prefill[0]!.seen[0]!.request.connection.reset(),
    );
    return 'nothing';
  };
  const got = await send(t, router.url, post('/generate', { text: 'a', return_logprob: true }));
  deepEqual([got.status, got.text], [200, '{"meta_info":{"input_token_logprobs":[1]}}']);
  await untilIdle(router);
});

for (const ending of ['reset', 'end'] as const) {
  test(`the decode engine fails (${ending}) after the start of an answer that waits for the prefill engine: another pair`, async (t) => {
    const { world, router } = await startPairs(t, [1, 2]);
    world.says = (half) => `{"meta_info":{"input_token_logprobs":[${half === 'prefill' ? '1' : ''}]}}`;
    // As SGLang's does, the prefill engine waits for the decode engine, which is gone.
    let isFirst = true;
    world.prefill[0]!.instead = () => {
      const isLost = isFirst;
      isFirst = false;
      return isLost ? 'nothing' : null;
    };
    world.decode[0]!.instead = ({ request }) => {
      request.connection.write(STREAM_HEAD + chunk('data: {"meta_info":{"input_token_logprobs":[]}}\n\n'));
      const worker = router.fleet.get(world.decode[0]!.engine.url)!;
      void until('the router has read it', () => worker.lastReadMs > 0).then(() => request.connection[ending]());
      return 'nothing';
    };
    const got = await send(t, router.url, post('/generate', { text: 'a', return_logprob: true }));
    deepEqual([got.status, got.text], [200, '{"meta_info":{"input_token_logprobs":[1]}}']);
    equal(world.decode[0]!.seen.length, 1);
    await untilIdle(router);
  });
}

for (const framing of ['length', 'close'] as const) {
  test(`an answer that ends by its ${framing} and waits for the prefill engine: its connection may be closed meanwhile`, async (t) => {
    const { world, router } = await startPairs(t, [1, 1]);
    const list = (said: string) => `{"meta_info":{"input_token_logprobs":[${said}]}}`;
    for (const half of [...world.prefill, ...world.decode]) half.instead = () => 'nothing';
    const client = await connectClient(t, router.url);
    client.write(post('/generate', { text: 'a', return_logprob: true }));
    await until('both have it', () => world.prefill[0]!.seen.length + world.decode[0]!.seen.length === 2);
    const decode = world.decode[0]!.seen[0]!.request.connection;
    const length = framing === 'length' ? `content-length: ${list('').length}\r\n` : '';
    decode.write(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n${length}\r\n${list('')}`);
    decode.end();
    await decode.closed;
    world.prefill[0]!.seen[0]!.request.answer(list('1'));
    equal((await client.answer()).text, list('1'));
    await untilIdle(router);
  });
}

test('an error is never held back for the sake of log probabilities', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  world.prefill[0]!.instead = () => 'nothing';
  world.decode[0]!.instead = () => ({ status: 422, body: '{"no": 1.0}' });
  const got = await send(t, router.url, post('/generate', { text: 'a', return_logprob: true }));
  deepEqual([got.status, got.text], [422, '{"no": 1.0}']);
  await untilIdle(router);
});

test('an error event is not held back either: the prefill engine may wait for a partner that has failed', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  world.prefill[0]!.instead = () => 'nothing';
  const event = 'data: {"error":{"message":"no memory","code":503}}\n\n';
  world.decode[0]!.instead = ({ request }) => {
    request.connection.write(`${STREAM_HEAD}${chunk(event)}0\r\n\r\n`);
    return 'nothing';
  };
  const got = await send(t, router.url, post('/generate', { text: 'a', stream: true, return_logprob: true }));
  deepEqual([got.status, got.text], [200, event]);
  await untilIdle(router);
});

test('the response of the prefill engine changes nothing of an error that the client already gets', async (t) => {
  const plugin = { name: 'same', responseEvent: (_x: unknown, event: Buffer) => event };
  const { world, router } = await startPairs(t, [1, 1], { disableRetries: true }, { plugins: [plugin] });
  const engines = [...world.prefill, ...world.decode];
  for (const half of engines) half.instead = () => 'nothing';
  const client = await connectClient(t, router.url);
  client.write(post('/generate', { text: 'a', stream: true, return_logprob: true }));
  await until('both have it', () => engines.every(({ seen }) => seen.length === 1));
  const [prefill, decode] = engines.map(({ seen }) => seen[0]!.request.connection);
  // A response of this size is read on another thread, which is started for it.
  const lists = `{"meta_info":{"input_token_logprobs":["${'1'.repeat(500_000)}"]}}`;
  prefill!.write(STREAM_HEAD + chunk(`data: ${lists}\n\n`));
  const worker = router.fleet.get(world.prefill[0]!.engine.url)!;
  await settled('what the router has read of it', () => worker.lastReadMs);
  prefill!.write('0\r\n\r\n');
  const event = 'data: {"error":{"message":"no memory","code":503}}\n\n';
  decode!.write(STREAM_HEAD + chunk(event));
  await client.read(chunk(event));
  for (const half of engines) half.instead = () => null;
  world.says = () => lists;
  const next = await send(t, router.url, post('/generate', { text: 'b', return_logprob: true }));
  equal(next.status, 200, 'the thread has read both responses');
  const rest = `${chunk('data: [DONE]\n\n')}0\r\n\r\n`;
  decode!.write(rest);
  equal(await client.read('0\r\n\r\n'), rest);
  await untilIdle(router);
});

test('plugins see the answer of the pair', async (t) => {
  const plugin = {
    name: 'upper',
    responseBody: (_x: unknown, body: Buffer) => Buffer.concat([body, Buffer.from(' ')]),
  };
  const { router } = await startPairs(t, [1, 1], {}, { plugins: [plugin] });
  const got = await send(t, router.url, post('/generate', { text: 'a' }));
  equal(got.text, '{"text":"decode0","meta_info":{}} ');
});

test('a body of many pieces', async (t) => {
  const { world, router } = await startPairs(t, [2, 1], { policy: 'cache_aware' });
  const ids = Array.from({ length: 150_000 }, (_, i) => i);
  world.prefill[0]!.instead = () => 'reset';
  const got = await send(t, router.url, post('/generate', { input_ids: ids }));
  equal(got.status, 200);
  const { text } = world.decode[0]!.seen.at(-1)!;
  match(text.slice(text.indexOf(']')), /^\],"bootstrap_host":/);
  deepEqual((JSON.parse(text) as { input_ids: number[] }).input_ids, ids);
  await untilIdle(router);
});

test('--request-timeout-secs ends both sides', async (t) => {
  const { world, router } = await startPairs(t, [1, 1], { requestTimeoutSecs: 0.2 });
  for (const half of [...world.prefill, ...world.decode]) half.instead = () => 'nothing';
  const got = await send(t, router.url, post('/generate', { text: 'a' }));
  equal(got.status, 504);
  // On a busy machine the time may be over before an engine has read its request.
  await until('both are let go', () =>
    [world.prefill[0]!, world.decode[0]!].every(({ seen }) => seen.every(({ request }) => request.connection.hasEnded)),
  );
  await untilIdle(router);
});

test('--first-byte-timeout-secs: 504, and no other worker is tried', async (t) => {
  const { world, router } = await startPairs(t, [1, 1], { firstByteTimeoutSecs: 0.2 });
  for (const half of [...world.prefill, ...world.decode]) half.instead = () => 'nothing';
  const got = await send(t, router.url, post('/generate', { text: 'a' }));
  deepEqual([got.status, got.get('x-turnout-error')], [504, 'first_byte_timeout']);
  await untilIdle(router);
  // On a busy machine the time may be over before an engine has read its request.
  for (const { seen } of [world.prefill[0]!, world.decode[0]!]) ok(seen.length <= 1, `${seen.length} requests`);
});

test('a client that leaves while its body is still coming', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  const client = await connectClient(t, router.url);
  client.write('POST /generate HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\n{"text":');
  await until('it is under way', () => router.pipeline.inFlight.size === 1);
  client.reset();
  await untilIdle(router);
  deepEqual([world.prefill[0]!.engine.requests.length, world.decode[0]!.engine.requests.length], [0, 0]);
});

test('an answer that waited whole for the prefill engine leaves its connection to the next one', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  const list = (said: string) => `{"meta_info":{"input_token_logprobs":[${said}]}}`;
  const decode = router.fleet.get(world.decode[0]!.engine.url)!;
  for (let i = 0; i < 3; i++) {
    world.prefill[0]!.instead = () => 'nothing';
    world.decode[0]!.instead = ({ request }) => {
      request.answer(list(''));
      return 'nothing';
    };
    decode.lastReadMs = 0;
    const client = await connectClient(t, router.url);
    client.write(post('/generate', { text: 'a', return_logprob: true }));
    await until('the decode engine has answered', () => decode.lastReadMs > 0);
    await until('the prefill engine has it', () => world.prefill[0]!.seen.length === i + 1);
    world.prefill[0]!.seen[i]!.request.answer(list('1'));
    equal((await client.answer()).text, list('1'));
  }
  equal(world.decode[0]!.engine.connections.length, 1);
  await untilIdle(router);
});
