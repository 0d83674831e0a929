import { deepEqual, equal, match, ok, throws } from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '../../src/config/load.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { connectors, startVllmPairs } from './scene.ts';

const raw = (path: string, body: string) => request('POST', path, body, ['content-type: application/json']);

const paths: [path: string, body: string][] = [
  ['/v1/completions', '{"model":"m","prompt":"a","max_tokens":9,"min_tokens":4}'],
  ['/v1/completions', '{"model":"m","prompt":[1,2]}'],
  ['/v1/chat/completions', '{"model":"m","messages":[],"max_completion_tokens":9}'],
  ['/v1/responses', '{"model":"m","input":"a","tools":[{"type":"function","name":"f"}]}'],
  ['/v1/messages', '{"model":"m","messages":[],"max_tokens":9}'],
  ['/inference/v1/generate', '{"token_ids":[1,2],"sampling_params":{"max_tokens":9,"prompt_logprobs":null}}'],
];
for (const connector of connectors) {
  for (const [path, body] of paths) {
    test(`${connector} ${path} ${body}: the prefill engine makes one token, the decode engine gets the client's own bytes`, async (t) => {
      const { world, router } = await startVllmPairs(t, connector, [1, 1]);
      const got = await send(t, router.url, raw(path, body));
      equal(got.status, 200);
      match(got.text, /"id":"decode0"/);
      equal(world.prefill[0]!.seen.length, 1);
      const [decode] = world.decode[0]!.seen;
      const own = `${body.slice(0, -1)},"kv_transfer_params":${decode!.params}}`;
      equal(decode!.text, own.replace(/"prompt_logprobs":\d+/, '"prompt_logprobs":null'));
      equal(world.kept.size, 0);
      await untilIdle(router);
    });
  }

  test(`${connector}: all other bytes are the client's own, numbers beyond 2^53 too`, async (t) => {
    const { world, router } = await startVllmPairs(t, connector, [1, 1]);
    const body =
      ' { "seed":18446744073709551615 , "prompt" : "h\\u00e9 }",\n "stream" :true, "stream_options":{"include_usage":true},"max_tokens" : 12,"temperature":1.0,"kv_transfer_params":{"mine":1}, "n":1}\n';
    const got = await send(t, router.url, raw('/v1/completions', body));
    equal(got.get('content-type'), 'text/event-stream');
    match(got.text, /^data: \{"id":"decode0",.*\}\n\ndata: \[DONE\]\n\n$/);
    const [prefill] = world.prefill[0]!.seen;
    const [decode] = world.decode[0]!.seen;
    const replaced = body.replace('{"mine":1}', decode!.params);
    equal(decode!.text, replaced);
    equal(
      prefill!.text,
      body
        .replace('"stream" :true, "stream_options":{"include_usage":true}', '"stream" :false')
        .replace('"max_tokens" : 12', '"max_tokens" : 1')
        .replace('{"mine":1}', prefill!.params)
        .replace('"n":1}', '"n":1,"min_tokens":1}'),
    );
    await untilIdle(router);
  });

  test(`${connector}: each request has its own transfer`, async (t) => {
    const { world, router } = await startVllmPairs(t, connector, [2, 2]);
    for (let i = 0; i < 6; i++) {
      equal((await send(t, router.url, post('/v1/completions', { prompt: `p${i}` }))).status, 200);
    }
    deepEqual(
      [...world.prefill, ...world.decode].map(({ seen }) => seen.length),
      [3, 3, 3, 3],
    );
    const params = world.decode.flatMap(({ seen }) => seen.map((each) => each.params));
    equal(new Set(params).size, 6);
    await untilIdle(router);
  });

  test(`${connector}: what one engine has to do, and everything else, goes to a decode engine alone`, async (t) => {
    const { world, router } = await startVllmPairs(t, connector, [1, 1]);
    const requests: [path: string, body: unknown][] = [
      ['/v1/completions', { prompt: ['a', 'b'] }],
      ['/v1/completions', { prompt: [[1], [2, 3]] }],
      ['/v1/completions', { prompt: 'a', n: 2 }],
      ['/v1/completions', { prompt: 'a', best_of: 3 }],
      ['/v1/completions', { prompt: 'a', echo: true, logprobs: 1 }],
      ['/v1/completions', { prompt: 'a', use_beam_search: true }],
      ['/v1/completions', { prompt: 'a', echo: 1 }],
      ['/v1/completions', { prompt: 'a', stream: true, prompt_logprobs: 1 }],
      ['/v1/completions', { prompt_embeds: 'AAAA' }],
      ['/v1/chat/completions', { messages: [], n: 4 }],
      ['/inference/v1/generate', { token_ids: [1], sampling_params: { n: 2 } }],
      ['/inference/v1/generate', { token_ids: [1], sampling_params: 7 }],
      ['/v1/responses', { input: 'a', previous_response_id: 'r' }],
      ['/v1/responses', { input: 'a', background: true }],
      ['/v1/responses', { input: 'a', tools: [{ type: 'function' }, { type: 'code_interpreter' }] }],
      ['/v1/embeddings', { input: 'a' }],
      ['/tokenize', { prompt: 'a' }],
      ['/anything', { input: 'a' }],
    ];
    for (const [path, body] of requests) {
      equal((await send(t, router.url, post(path, body as object))).status, 200, path);
    }
    equal(world.prefill[0]!.engine.requests.length, 0);
    deepEqual(
      world.decode[0]!.seen.map(({ text }) => text),
      requests.map(([, body]) => JSON.stringify(body)),
    );
    // One prompt in a list is one prompt.
    equal((await send(t, router.url, post('/v1/completions', { prompt: [[1, 2]], n: 1, echo: false }))).status, 200);
    equal(world.prefill[0]!.seen.length, 1);
    await untilIdle(router);
  });
}

test('an echo that rollout fields ask for in other words goes to a decode engine alone; of a chat the pair knows the prompt', async (t) => {
  for (const connector of connectors) {
    const { world, router } = await startVllmPairs(t, connector, [1, 1], { plugin: ['rollout-fields'] });
    const asked = (body: object) => send(t, router.url, post('/v1/completions', { prompt: [1, 2], ...body }));
    for (const more of [
      { echo_last: 2 },
      { echo: false, echo_last: 1 },
      { echo_last: 1, stream: true },
      { echo: true },
    ])
      equal((await asked({ logprobs: true, ...more })).status, 200);
    equal(world.prefill[0]!.engine.requests.length, 0);
    for (const { params, body } of world.decode[0]!.seen) deepEqual([params, body['echo']], ['', true]);
    for (const more of [{ echo_last: 0 }, {}]) equal((await asked({ logprobs: true, ...more })).status, 200);
    equal(world.prefill[0]!.seen.length, 2);
    const chat = { messages: [], logprobs: true, echo_last: 2 };
    await send(t, router.url, post('/v1/chat/completions', chat));
    equal(world.prefill[0]!.seen.at(-1)!.body['prompt_logprobs'], 0);
    await untilIdle(router);
  }
});

test('--pd-min-prompt-tokens: short prompts go to a decode engine alone, also after a reload', async (t) => {
  const { world, router } = await startVllmPairs(t, 'nixl', [1, 1], { pdMinPromptTokens: 100 });
  const ask = (body: object, path = '/v1/completions') => send(t, router.url, post(path, body));
  const ids = (count: number) => Array.from({ length: count }, (_, i) => 1000 + i);
  equal((await ask({ prompt: ids(90) })).status, 200);
  equal((await ask({ prompt: 'four'.repeat(90) })).status, 200);
  equal((await ask({ token_ids: ids(90), sampling_params: {} }, '/inference/v1/generate')).status, 200);
  equal((await ask({ input: 'four'.repeat(90) }, '/v1/responses')).status, 200);
  equal(world.prefill[0]!.seen.length, 0);
  equal((await ask({ prompt: ids(120) })).status, 200);
  equal((await ask({ messages: [{ role: 'user', content: 'four'.repeat(120) }] }, '/v1/chat/completions')).status, 200);
  equal((await ask({ input: 'four'.repeat(120) }, '/v1/responses')).status, 200);
  equal(world.prefill[0]!.seen.length, 3);
  await router.reload(() => ({ ...router.config, pdMinPromptTokens: 0 }));
  equal((await ask({ prompt: ids(2) })).status, 200);
  equal(world.prefill[0]!.seen.length, 4);
  equal(world.decode[0]!.seen.length, 8);
  await untilIdle(router);
});

test('what is no JSON object is refused by the decode engine, in its own words', async (t) => {
  const { world, router } = await startVllmPairs(t, 'nixl', [1, 1]);
  world.decode[0]!.engine.onRequest = (asked) => void asked.whole.then(() => asked.answer('"its own words"'));
  for (const body of ['', '[1]', '{"text":']) {
    equal((await send(t, router.url, raw('/v1/completions', body))).text, '"its own words"');
  }
  equal(world.prefill[0]!.engine.requests.length, 0);
});

test('nixl: the decode engine gets a request only when the prefill engine has responded', async (t) => {
  const { world, router } = await startVllmPairs(t, 'nixl', [1, 1]);
  const load = (role: 'prefill' | 'decode') => router.fleet.load(router.fleet.get(world[role][0]!.engine.url)!);
  world.prefill[0]!.instead = () => 'nothing';
  world.decode[0]!.instead = () => 'nothing';
  const client = await connectClient(t, router.url);
  client.write(post('/v1/completions', { prompt: 'a' }));
  await until('the prefill engine has it', () => world.prefill[0]!.seen.length === 1);
  deepEqual([load('prefill'), load('decode'), world.decode[0]!.engine.requests.length], [1, 1, 0]);
  world.kept.add('{"k":1}');
  world.prefill[0]!.seen[0]!.request.answer('{"kv_transfer_params":{"k":1}}');
  await until('the decode engine has it', () => world.decode[0]!.seen.length === 1);
  deepEqual([load('prefill'), load('decode')], [0, 1]);
  world.decode[0]!.seen[0]!.request.answer('{"done":12345678901234567890}');
  equal((await client.answer()).text, '{"done":12345678901234567890}');
  await untilIdle(router);
});

test('mooncake: both get it at once, and the bootstrap server is asked once', async (t) => {
  const { world, router } = await startVllmPairs(t, 'mooncake', [1, 1]);
  await Promise.all(Array.from({ length: 5 }, () => send(t, router.url, post('/v1/completions', { prompt: 'a' }))));
  equal(world.prefill[0]!.queries, 1);
  const [prefill] = world.prefill[0]!.seen;
  match(prefill!.params, /"transfer_id":"xfer-[0-9a-f-]{36}"/);
  ok(world.decode[0]!.seen.some(({ text }) => text.includes(/"transfer_id":"[^"]+"/.exec(prefill!.params)![0])));
  await untilIdle(router);
});

test('each role has its own policy', async (t) => {
  const policies = { prefillPolicy: 'cache_aware', decodePolicy: 'round_robin' };
  const { world, router } = await startVllmPairs(t, 'nixl', [2, 2], policies);
  const prefixes = ['alpha '.repeat(200), 'beta '.repeat(200)];
  for (let i = 0; i < 12; i++) {
    equal((await send(t, router.url, post('/v1/completions', { prompt: `${prefixes[i % 2]}${i}` }))).status, 200);
  }
  for (const { seen } of world.prefill) {
    equal(new Set(seen.map(({ text }) => /alpha|beta/.exec(text)![0])).size, 1);
    equal(seen.length, 6);
  }
  deepEqual(
    world.decode.map(({ seen }) => seen.length),
    [6, 6],
  );
});

test('data-parallel ranks are halves: each engine gets its own rank', async (t) => {
  const { world, router } = await startVllmPairs(t, 'nixl', [1, 1], { prefill: [], decode: [] });
  const [prefill, decode] = [world.prefill[0]!, world.decode[0]!];
  for (const [half, role] of [
    [prefill, 'prefill'],
    [decode, 'decode'],
  ] as const) {
    const added = post('/workers', { url: `${half.engine.url}@4-5`, worker_type: role });
    equal((await send(t, router.url, added)).status, 202);
  }
  for (let i = 0; i < 4; i++) {
    equal((await send(t, router.url, post('/v1/completions', { prompt: 'a' }))).status, 200);
  }
  for (const { seen } of [prefill, decode]) {
    deepEqual(
      seen.map((each) => each.request.head.get('x-data-parallel-rank')),
      ['4', '5', '4', '5'],
    );
  }
  await untilIdle(router);
});

test('mooncake: a rank of several is known by its own id; an engine of several is not taken without', async (t) => {
  const { world, router } = await startVllmPairs(t, 'mooncake', [1, 1], { prefill: [] });
  const [prefill] = world.prefill;
  prefill!.ranks = 2;
  const add = async (url: string) => {
    const added = { url, worker_type: 'prefill', bootstrap_port: prefill!.bootstrapPort };
    equal((await send(t, router.url, post('/workers', added))).status, 202);
  };
  await add(prefill!.engine.url);
  const ask = () => send(t, router.url, post('/v1/completions', { prompt: 'a' }));
  equal((await ask()).status, 503);
  router.fleet.remove(router.fleet.get(prefill!.engine.url)!);
  await add(`${prefill!.engine.url}@1`);
  equal((await ask()).status, 200);
  match(world.decode[0]!.seen[0]!.params, /"remote_engine_id":"engine-0 rank 1"/);
});

const mistakes: [flags: Record<string, unknown>, words: RegExp][] = [
  [{ vllmPdDisaggregation: true, pdDisaggregation: true }, /give one of them/],
  [
    { vllmPdDisaggregation: true, workerUrls: ['http://a:1'] },
    /with --vllm-pd-disaggregation give --prefill and --decode/,
  ],
  [{ pdDisaggregation: true, pdMinPromptTokens: 5 }, /--pd-min-prompt-tokens needs --vllm-pd-disaggregation/],
  [{ kvConnector: 'mooncake' }, /--kv-connector mooncake needs --vllm-pd-disaggregation/],
  [{ pdMinPromptTokens: 5 }, /--pd-min-prompt-tokens needs --vllm-pd-disaggregation/],
  [{ prefill: ['http://a:1'] }, /--prefill needs .*--vllm-pd-disaggregation/],
  [{ vllmPdDisaggregation: true, kvConnector: 'moriio' }, /--kv-connector/],
];
for (const [flags, words] of mistakes) {
  test(`${JSON.stringify(flags)} is refused in words`, () => {
    throws(() => loadConfig(flags, {}, undefined), words);
  });
}
