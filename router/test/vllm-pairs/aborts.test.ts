import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { send } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { blamed } from '../harness/pair-failures.ts';
import { untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { connectors, startVllmPairs } from './scene.ts';

/** What vLLM 0.32.0 answers to a request that is aborted before its first token, by path, and the stream that the client gets of it. */
const answers: Record<string, readonly [whole: string, stream: string]> = {
  '/v1/completions': [
    '{"id":"c","object":"text_completion","choices":[{"index":0,"text":"","finish_reason":"abort","token_ids":[]}],"usage":{"prompt_tokens":3,"completion_tokens":0},"kv_transfer_params":null}',
    'data: {"id":"c","object":"text_completion","choices":[{"index":0,"text":"","finish_reason":"abort","token_ids":[]}],"usage":{"prompt_tokens":3,"completion_tokens":0},"kv_transfer_params":null}\n\ndata: [DONE]\n\n',
  ],
  '/v1/chat/completions': [
    '{"id":"c","object":"chat.completion","created":12345678901234567890,"choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"abort"}],"kv_transfer_params":null}',
    'data: {"id":"c","object":"chat.completion.chunk","created":12345678901234567890,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"abort"}],"kv_transfer_params":null}\n\ndata: [DONE]\n\n',
  ],
  '/inference/v1/generate': [
    '{"request_id":"g","choices":[{"index":0,"finish_reason":"abort","token_ids":[]}],"kv_transfer_params":null}',
    'data: {"request_id":"g","choices":[{"index":0,"finish_reason":"abort","token_ids":[]}],"kv_transfer_params":null}\n\ndata: [DONE]\n\n',
  ],
  '/v1/messages': [
    '{"id":"m","type":"message","content":[],"stop_reason":null,"usage":{"input_tokens":3,"output_tokens":0}}',
    'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","content":[],"stop_reason":null,"usage":{"input_tokens":3,"output_tokens":0}}}\n\n' +
      'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":null,"stop_sequence":null},"usage":{"input_tokens":3,"output_tokens":0}}\n\n' +
      'event: message_stop\ndata: {"type":"message_stop"}\n\n',
  ],
  '/v1/responses': [
    '{"id":"r","object":"response","output":[],"status":"completed","usage":{"input_tokens":3,"output_tokens":0}}',
    'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":{"id":"r","object":"response","output":[],"status":"completed","usage":{"input_tokens":3,"output_tokens":0}}}\n\n' +
      'event: response.completed\ndata: {"type":"response.completed","sequence_number":1,"response":{"id":"r","object":"response","output":[],"status":"completed","usage":{"input_tokens":3,"output_tokens":0}}}\n\n',
  ],
};

for (const connector of connectors) {
  for (const stream of [false, true]) {
    test(`${connector}: an abort at the prefill engine stays an abort, and no engine is blamed (${stream ? 'stream' : 'whole'})`, async (t) => {
      const { world, router } = await startVllmPairs(t, connector, [2, 1], { cbFailureThreshold: 1 });
      const [decode] = world.decode;
      let body = '';
      for (const half of world.prefill) half.instead = () => ({ status: 200, body });
      for (const [path, [whole, events]] of Object.entries(answers)) {
        const before = decode!.seen.length;
        const sent = (): number => world.prefill.reduce((sum, { seen }) => sum + seen.length, 0);
        const sentBefore = sent();
        body = whole;
        const got = await send(t, router.url, post(path, { prompt: 'a', input: 'a', stream }));
        deepEqual([got.status, got.text], [200, stream ? events : whole]);
        equal(got.get('content-type'), stream ? 'text/event-stream; charset=utf-8' : 'application/json');
        equal(sent() - sentBefore, 1);
        if (connector === 'nixl') equal(decode!.seen.length, 0);
        else
          await until('the decode engine is let go', () => decode!.seen[before]?.request.connection.hasEnded === true);
      }
      await untilIdle(router);
      deepEqual(await blamed(t, router), []);
      for (const worker of router.fleet.workers) deepEqual(worker.reasonNames(), []);
      for (const half of world.prefill) half.instead = () => null;
      equal((await send(t, router.url, post('/v1/completions', { prompt: 'a', stream }))).status, 200);
      await untilIdle(router);
    });
  }
}

test('a plugin sees the response of an aborted request', async (t) => {
  const plugin = {
    name: 'longer',
    responseBody: (_x: unknown, body: Buffer) => Buffer.concat([body, Buffer.from(' ')]),
  };
  const { world, router } = await startVllmPairs(t, 'nixl', [1, 1], {}, { plugins: [plugin] });
  // Larger than what is read on this thread.
  const body = `{"choices":[{"finish_reason":"abort","prompt_token_ids":[${'1,'.repeat(100_000)}1]}]}`;
  world.prefill[0]!.instead = () => ({ status: 200, body });
  const got = await send(t, router.url, post('/v1/completions', { prompt: 'a' }));
  equal(got.status, 200);
  ok(got.text === `${body} `);
  await untilIdle(router);
});
