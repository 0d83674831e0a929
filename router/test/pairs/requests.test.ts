import { deepEqual, equal, match, notEqual } from 'node:assert/strict';
import { test } from 'node:test';
import type { Plugin } from '../../src/plugin.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { startPairs } from './scene.ts';

const generate = (body: string) => request('POST', '/generate', body, ['content-type: application/json']);

test('both engines get the same bytes: the client’s, with three fields at their end', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  const body =
    ' { "seed":18446744073709551615 , "text" : "h\\u00e9 }",\n "temperature":1.0, "seed":2,"bootstrap_room":7}\n';
  const got = await send(t, router.url, generate(body));
  deepEqual([got.status, JSON.parse(got.text).text], [200, 'decode0']);
  const [prefill] = world.prefill[0]!.seen;
  const [decode] = world.decode[0]!.seen;
  equal(prefill!.text, decode!.text);
  const at = body.lastIndexOf('}');
  equal(prefill!.text.slice(0, at), body.slice(0, at));
  equal(prefill!.text.slice(-2), '}\n');
  equal(prefill!.hosts[0], new URL(world.prefill[0]!.engine.url).hostname);
  equal(prefill!.ports[0], null);
  await untilIdle(router);
});

test('--prefill URL PORT: the port is in the fields, and in GET /workers', async (t) => {
  const { world, router } = await startPairs(t, [1, 1], { prefill: [] });
  const { url } = world.prefill[0]!.engine;
  const refused = await send(t, router.url, generate('{"text":"a"}'));
  equal(refused.status, 503);
  match(refused.text, /none for prefill is registered/);
  const added = await send(t, router.url, post('/workers', { url, worker_type: 'prefill', bootstrap_port: 8998 }));
  equal(added.status, 202);
  equal((await send(t, router.url, generate('{"text":"a"}'))).status, 200);
  deepEqual(world.decode[0]!.seen[0]!.ports, [8998]);
  const { workers, stats } = JSON.parse((await send(t, router.url, request('GET', '/workers'))).text);
  deepEqual(
    workers.map((worker: Record<string, unknown>) => [worker['worker_type'], worker['bootstrap_port']]),
    [
      ['decode', null],
      ['prefill', 8998],
    ],
  );
  deepEqual(stats, { prefill_count: 1, decode_count: 1, regular_count: 0 });
});

test('batches: a list for each field, a room for each prompt', async (t) => {
  const { world, router } = await startPairs(t, [1, 1], { prefillPolicy: 'cache_aware' });
  equal((await send(t, router.url, post('/generate', { input_ids: [[1], [2, 3], [4]] }))).status, 200);
  equal((await send(t, router.url, post('/v1/completions', { model: 'm', prompt: ['a', 'b'] }))).status, 200);
  equal((await send(t, router.url, post('/v1/chat/completions', { model: 'm', messages: [], n: 1 }))).status, 200);
  equal((await send(t, router.url, post('/v1/completions', { model: 'm', prompt: [1, 2, 3] }))).status, 200);
  deepEqual(
    world.decode[0]!.seen.map(({ rooms, isList }) => (isList ? rooms.length : 'one')),
    [3, 2, 'one', 'one'],
  );
});

test('a stream is relayed as it comes', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  const got = await send(t, router.url, post('/generate', { text: 'a', stream: true }));
  equal(got.get('content-type'), 'text/event-stream');
  equal(got.text, 'data: {"text":"decode0","meta_info":{}}\n\ndata: [DONE]\n\n');
  equal(world.prefill[0]!.seen.length, 1);
  await untilIdle(router);
});

// Of engines that compress where they may.
for (const stream of [false, true]) {
  test(`log probabilities of the prompt are the prefill engine's, ${stream ? 'streamed' : 'whole'}`, async (t) => {
    const { world, router } = await startPairs(t, [1, 1]);
    world.says = (half) =>
      half === 'prefill'
        ? '{"meta_info":{"input_token_logprobs":[[null,1,null],[-0.50,12345678901234567890,null]]}}'
        : '{"text":"t","meta_info":{"input_token_logprobs":[], "x":1.0}}';
    const body = { text: 'a', return_logprob: true, stream };
    const got = await send(t, router.url, post('/generate', body, ['accept-encoding: gzip, deflate']));
    const merged =
      '{"text":"t","meta_info":{"input_token_logprobs":[[null,1,null],[-0.50,12345678901234567890,null]], "x":1.0}}';
    equal(got.text, stream ? `data: ${merged}\n\ndata: [DONE]\n\n` : merged);
    if (!stream) equal(Number(got.get('content-length')), merged.length);
    equal((await send(t, router.url, post('/generate', { text: 'a', stream: false }))).text.includes('[]'), true);
    await untilIdle(router);
  });
}

for (const stream of [false, true]) {
  for (const bytes of [1, 200_000]) {
    test(`plugins get the merged response, ${stream ? 'streamed' : 'whole'}, lists of ${bytes} bytes`, async (t) => {
      const seen = { observed: '', changed: '' };
      const adds = (_x: unknown, bytes: Buffer): Buffer => {
        seen.changed += bytes.toString();
        return Buffer.from(bytes.toString().replace('"x"', '"y"'));
      };
      const plugin: Plugin = {
        name: 'sees',
        responseEvent: adds,
        responseBody: adds,
        observeResponse: () => ({
          observe: (bytes, start, end) => void (seen.observed += bytes.toString('latin1', start, end)),
        }),
      };
      const { world, router } = await startPairs(t, [1, 1], {}, { plugins: [plugin] });
      const list = `["${'l'.repeat(bytes)}"]`;
      world.says = (half) =>
        half === 'prefill'
          ? `{"meta_info":{"input_token_logprobs":${list}}}`
          : '{"x":"t","meta_info":{"input_token_logprobs":[]}}';
      const got = await send(t, router.url, post('/generate', { text: 'a', return_logprob: true, stream }));
      const merged = `{"x":"t","meta_info":{"input_token_logprobs":${list}}}`;
      const sent = stream ? `data: ${merged}\n\ndata: [DONE]\n\n` : merged;
      equal(seen.observed, sent);
      equal(seen.changed, sent);
      equal(got.text, sent.replace('"x"', '"y"'));
      await untilIdle(router);
    });
  }
}

test('a plugin changes the body before the fields are added', async (t) => {
  const plugin = {
    name: 'adds',
    requestBody: (_x: unknown, body: Buffer) => Buffer.concat([body.subarray(0, -1), Buffer.from(',"added":1}')]),
  };
  const { world, router } = await startPairs(t, [1, 1], {}, { plugins: [plugin] });
  equal((await send(t, router.url, generate('{"text":"a"}'))).status, 200);
  match(world.decode[0]!.seen[0]!.text, /^\{"text":"a","added":1,"bootstrap_host":/);
});

test('a body that is not a JSON object is refused, and no engine gets it', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  for (const body of ['', '[1]', '{"text":']) {
    const got = await send(t, router.url, generate(body));
    deepEqual([got.status, got.get('x-turnout-error')], [400, 'bad_request']);
  }
  deepEqual([world.prefill[0]!.engine.requests.length, world.decode[0]!.engine.requests.length], [0, 0]);
  await untilIdle(router);
});

test('several samples of a prompt, which SGLang never answers in pairs: 501, and no engine gets it', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  const got = await send(t, router.url, post('/v1/chat/completions', { model: 'm', messages: [], n: 4 }));
  deepEqual([got.status, got.get('x-turnout-error')], [501, 'not_with_pairs']);
  match(got.text, /n above 1/);
  deepEqual([world.prefill[0]!.engine.requests.length, world.decode[0]!.engine.requests.length], [0, 0]);
  await untilIdle(router);
});

test('an echo of a completion with rollout fields, whose logprobs a decode engine does not have: 501, and no engine gets it', async (t) => {
  const { world, router } = await startPairs(t, [1, 1], { plugin: ['rollout-fields:{"engine":"sglang"}'] });
  const body = { model: 'm', prompt: [11, 12], max_tokens: 4, logprobs: true };
  for (const more of [{ echo: true }, { echo_last: 1 }, { echo: true, stream: true }, { echo: true, max_tokens: 0 }]) {
    const got = await send(t, router.url, post('/v1/completions', { ...body, ...more }));
    deepEqual([got.status, got.get('x-turnout-error')], [501, 'not_with_pairs']);
    match(got.text, /echo and echo_last/);
  }
  deepEqual([world.prefill[0]!.engine.requests.length, world.decode[0]!.engine.requests.length], [0, 0]);
  await untilIdle(router);
});

test('paths that pairs do not serve: 501, and no engine gets it', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  const paths = [
    '/v1/embeddings',
    '/v1/responses',
    '/encode',
    '/invocations',
    '/vertex_generate',
    '/x/generate',
    '/new',
    '/update_x/generate',
  ];
  for (const path of paths) {
    const got = await send(t, router.url, post(path, { text: 'a' }));
    deepEqual([path, got.status, got.get('x-turnout-error')], [path, 501, 'not_with_pairs']);
  }
  const put = await send(t, router.url, request('PUT', '/generate', '{"text":"a"}'));
  equal(put.status, 501);
  deepEqual([world.prefill[0]!.engine.requests.length, world.decode[0]!.engine.requests.length], [0, 0]);
});

test('questions go to a decode engine, tokenizing to a prefill engine', async (t) => {
  const { router } = await startPairs(t, [1, 1]);
  equal((await send(t, router.url, request('GET', '/v1/models'))).text, '"decode0"');
  equal((await send(t, router.url, post('/tokenize', { prompt: 'a' }))).text, '"prefill0"');
  equal((await send(t, router.url, post('/v1/detokenize', { tokens: [1] }))).text, '"prefill0"');
  await untilIdle(router);
});

test('a regular worker in a fleet of pairs gets nothing', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  const extra = await world.add('decode');
  equal((await send(t, router.url, post('/workers', { url: extra.engine.url }))).status, 202);
  for (let i = 0; i < 4; i++) equal((await send(t, router.url, generate('{"text":"a"}'))).status, 200);
  equal(extra.engine.requests.length, 0);
});

test('a chunked upload goes on whole, with a length', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  const client = await connectClient(t, router.url);
  client.write('POST /generate HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n8\r\n{"text":\r\n');
  client.write('4\r\n"a"}\r\n0\r\n\r\n');
  equal((await client.answer()).status, 200);
  const { request: asked, text } = world.decode[0]!.seen[0]!;
  equal(asked.head.get('transfer-encoding'), undefined);
  equal(Number(asked.head.get('content-length')), text.length);
});

test('connections to both are kept and used again', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  const client = await connectClient(t, router.url);
  for (let i = 0; i < 5; i++) {
    client.write(generate('{"text":"a"}'));
    equal((await client.answer()).status, 200);
    await until('both are idle', () => router.fleet.inFlight.every((n) => n === 0));
  }
  deepEqual([world.prefill[0]!.engine.connections.length, world.decode[0]!.engine.connections.length], [1, 1]);
});

test('a worker has one role', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  const again = await send(t, router.url, post('/workers', { url: world.urls.decode[0], worker_type: 'prefill' }));
  equal(again.status, 400);
  match(again.text, /in the fleet as decode/);
});

test('a new room for each request', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  for (let i = 0; i < 2; i++) await send(t, router.url, generate('{"text":"a"}'));
  const [first, second] = world.decode[0]!.seen;
  notEqual(first!.rooms[0], second!.rooms[0]);
});

test('what steers engines goes to the engines of both roles', async (t) => {
  const { world, router } = await startPairs(t, [2, 1]);
  for (const { engine } of [...world.prefill, ...world.decode]) engine.onRequest = (asked) => asked.answer('{}');
  const got = await send(t, router.url, post('/flush_cache', {}));
  const { ok } = JSON.parse(got.text) as { ok: number };
  const told = [...world.prefill, ...world.decode].map(({ engine }) => engine.requests.map(({ target }) => target));
  deepEqual(told, [['/flush_cache'], ['/flush_cache'], ['/flush_cache']]);
  deepEqual([got.status, ok], [200, 3]);
});
