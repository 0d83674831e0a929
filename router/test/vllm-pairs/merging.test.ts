import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import type { Plugin } from '../../src/plugin.ts';
import { send } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { untilIdle } from '../harness/router.ts';
import { connectors, startVllmPairs } from './scene.ts';

for (const connector of connectors) {
  test(`${connector}: log probabilities of the prompt are asked of the prefill engine only`, async (t) => {
    const { world, router } = await startVllmPairs(t, connector, [1, 1]);
    world.says = (half) => `"prompt_logprobs":${half === 'prefill' ? '[null,{"7":{"logprob":-0.50}}]' : 'null'}`;
    const got = await send(
      t,
      router.url,
      post('/v1/chat/completions', { messages: [], prompt_logprobs: 1, temperature: 0 }),
    );
    equal(got.text, '{"id":"decode0","prompt_logprobs":[null,{"7":{"logprob":-0.50}}],"kv_transfer_params":null}');
    equal(Number(got.get('content-length')), got.text.length);
    equal(world.prefill[0]!.seen[0]!.body['prompt_logprobs'], 1);
    equal(world.decode[0]!.seen[0]!.body['prompt_logprobs'], null);
    const nested = { token_ids: [1], sampling_params: { max_tokens: 3, prompt_logprobs: 1, seed: 5 } };
    equal((await send(t, router.url, post('/inference/v1/generate', nested))).status, 200);
    match(world.prefill[0]!.seen[1]!.text, /"prompt_logprobs":1,"seed":5,"min_tokens":1\}/);
    match(world.decode[0]!.seen[1]!.text, /\{"max_tokens":3,"prompt_logprobs":null,"seed":5\}/);
    await untilIdle(router);
  });

  test(`${connector}: engines that compress where they may are not asked to: their responses are read`, async (t) => {
    const { world, router } = await startVllmPairs(t, connector, [1, 1]);
    world.says = (half) => `"prompt_logprobs":${half === 'prefill' ? '[null]' : 'null'}`;
    const body = { prompt: 'a', prompt_logprobs: 1 };
    const got = await send(t, router.url, post('/v1/completions', body, ['accept-encoding: gzip, deflate']));
    deepEqual([got.status, got.text], [200, '{"id":"decode0","prompt_logprobs":[null],"kv_transfer_params":null}']);
    await untilIdle(router);
  });

  for (const stream of [false, true]) {
    test(`${connector}: cached tokens are the prefill engine's, ${stream ? 'streamed' : 'whole'}`, async (t) => {
      const { world, router } = await startVllmPairs(t, connector, [1, 1]);
      world.says = (half) =>
        `"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":${half === 'prefill' ? 2 : 9}}}`;
      const got = await send(t, router.url, post('/v1/completions', { prompt: 'a', stream }));
      match(got.text, /"cached_tokens":2\}/);
      match(got.text, /decode0/);
      if (stream) match(got.text, /\n\ndata: \[DONE\]\n\n$/);
      await untilIdle(router);
    });
  }

  test(`${connector}: a plugin that observes the response gets the merged one`, async (t) => {
    let seen = '';
    const observer: Plugin = {
      name: 'sees',
      observeResponse: () => ({
        observe: (bytes, start, end) => void (seen += bytes.toString('latin1', start, end)),
      }),
    };
    const { world, router } = await startVllmPairs(t, connector, [1, 1], {}, { plugins: [observer] });
    const rows = (numbers: number[]): string =>
      JSON.stringify(Buffer.from(Int32Array.from(numbers).buffer).toString('base64'));
    world.says = (half) => `"choices":[{"routed_experts":${rows(half === 'prefill' ? [1, 2] : [0, 0, 3])}}]`;
    const got = await send(t, router.url, post('/v1/completions', { prompt: 'a' }));
    ok(seen.includes(rows([1, 2, 3])), seen);
    equal(seen, got.text);
    await untilIdle(router);
  });

  test(`${connector}: without anything to merge an answer keeps its framing`, async (t) => {
    const { world, router } = await startVllmPairs(t, connector, [1, 1]);
    const body = '{"usage": null}';
    world.decode[0]!.instead = ({ request }) => {
      request.connection.write(
        `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nf\r\n${body}\r\n0\r\n\r\n`,
      );
      return 'nothing';
    };
    // The prefill engine of a transfer that nobody waits for would wait for ever.
    world.prefill[0]!.instead = ({ request }) => {
      world.kept.add('{"k":2}');
      request.answer('{"kv_transfer_params":{"k":2}}');
      return 'nothing';
    };
    const got = await send(t, router.url, post('/v1/completions', { prompt: 'a' }));
    deepEqual([got.get('transfer-encoding'), got.text], ['chunked', body]);
    await untilIdle(router);
  });
}
