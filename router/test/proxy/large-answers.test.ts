import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { connectClient, request, send } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { startPairs } from '../pairs/scene.ts';
import { startVllmPairs } from '../vllm-pairs/scene.ts';
import type { Plugin } from '../../src/plugin.ts';

const big = (bytes: number): string => Array.from({ length: bytes / 8 }, (_, i) => String(i).padStart(7)).join();

for (const when of ['now', 'later'] as const)
  test(`a plugin changes answers of any size ${when}, and the next one on the connection comes after`, async (t) => {
    const engine = await startEngine(t, {
      onRequest: (asked) => asked.connection.write(answer(200, big(Number(asked.target.slice(1))))),
    });
    const dotted = (body: Buffer): Buffer => Buffer.concat([body, Buffer.from('.')]);
    const plugins: Plugin[] = [
      { name: 'dot', responseBody: (_x, body) => (when === 'now' ? dotted(body) : turn().then(() => dotted(body))) },
      { name: 'after it', responseBody: (_x, body) => dotted(body) },
    ];
    const router = await startTestRouter(t, { workerUrls: [engine.url] }, { plugins });
    const client = await connectClient(t, router.url);
    const sizes = [3_000_000, 80, 70_000, 8, 1_200_000];
    client.write(sizes.map((size) => request('GET', `/${size}`)).join(''));
    for (const size of sizes) {
      const got = await client.answer();
      deepEqual([got.get('content-length'), got.text], [String(got.payload.length), `${big(size)}..`]);
    }
    await untilIdle(router);
  });

for (const [prefill, decode] of [
  [2_000_000, 8],
  [80_000, 80_000],
  [8, 3_000_000],
] as const) {
  test(`pairs: lists of ${prefill} and ${decode} bytes are merged`, async (t) => {
    const { world, router } = await startPairs(t, [1, 1]);
    const said = (list: string): string => `{"meta_info":{"n":18446744073709551615,"input_token_logprobs":[${list}]}}`;
    world.says = (half) => said(big(half === 'prefill' ? prefill : decode));
    const got = await send(t, router.url, post('/generate', { text: 'a', return_logprob: true }));
    equal(got.text, said(`${big(prefill)},${big(decode)}`));
    await untilIdle(router);
  });

  test(`pairs of vLLM: ${prefill} bytes are put into an answer of ${decode}`, async (t) => {
    const { world, router } = await startVllmPairs(t, 'nixl', [1, 1]);
    const said = (list: string, more: string): string => `"prompt_logprobs":${list},"more":[${more}]`;
    world.says = (half) => said(half === 'prefill' ? `[${big(prefill)}]` : 'null', big(decode));
    const got = await send(t, router.url, post('/v1/completions', { prompt: 'a', prompt_logprobs: 1 }));
    equal(got.text.includes(said(`[${big(prefill)}]`, big(decode))), true, got.text.slice(0, 200));
    await untilIdle(router);
  });
}

test('a client that leaves in the middle of a changed answer: others are answered meanwhile, and nothing stays', async (t) => {
  const engine = await startEngine(t, {
    onRequest: (asked) => asked.connection.write(answer(200, big(Number(asked.target.slice(1))))),
  });
  const plugin: Plugin = { name: 'same', responseBody: (_x, body) => body };
  const router = await startTestRouter(t, { workerUrls: [engine.url] }, { plugins: [plugin] });
  const slow = await connectClient(t, router.url);
  slow.write(request('GET', '/24000000'));
  await slow.read('\r\n\r\n');
  slow.socket.pause();
  equal((await send(t, router.url, request('GET', '/80'))).text, big(80));
  slow.socket.destroy();
  await untilIdle(router);
});
