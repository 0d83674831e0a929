import { deepEqual, equal, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { Plugin } from '../../src/plugin.ts';
import type { Router } from '../../src/router.ts';
import { connectClient, request } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { startScene, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { startPairs } from '../pairs/scene.ts';
import { startVllmPairs } from '../vllm-pairs/scene.ts';

/** What takes longest to read. */
const ids = `${`[${'1,'.repeat(40)}"x"],`.repeat(90_000)}1`;
const small = (path: string): string => request('POST', path, '{"prompt":"x"}', ['x-small: 1']);

/** Calls `then` when a request has come as a whole, before anything is done with it. */
const whenWhole = (then: () => void): Plugin => ({
  name: 'watch',
  appliesTo: ({ head }) => head.get('x-large') !== undefined,
  classify: (x) =>
    new Promise((resolve) =>
      x.body.whenComplete(() => {
        then();
        resolve();
      }),
    ),
});

/** Sends a large request, and a small one in the moment when the router has all of the large one. @returns whose answer came first */
async function race(t: TestContext, router: Router, path: string, large: string, hears: (then: () => void) => void) {
  const order: string[] = [];
  const [first, second] = [await connectClient(t, router.url), await connectClient(t, router.url)];
  const heard = new Promise<void>((resolve) => hears(resolve));
  first.write(request('POST', path, large, ['x-large: 1']));
  const largeAnswered = first.answer().then(({ status }) => order.push(`large ${status}`));
  await heard;
  second.write(small(path));
  await second.answer().then(({ status }) => order.push(`small ${status}`));
  await largeAnswered;
  return order;
}

/** A plugin, and how to hear of it. */
function watch() {
  let then = (): void => {};
  return { plugin: whenWhole(() => then()), hears: (listener: () => void): void => void (then = listener) };
}

test('others are answered while a large body gets its rank', async (t) => {
  const control = (path: string): string =>
    path === '/model_info' ? answer(200, '{"model_path":"m"}') : answer(path === '/health' ? 200 : 404, '{}');
  const bodies: Buffer[] = [];
  const engine = await startEngine(t, {
    control,
    onRequest: async (asked) => {
      bodies.push(await asked.payload());
      asked.answer('{}');
    },
  });
  const { plugin, hears } = watch();
  const options = { workerUrls: [`${engine.url}@1`], disableHealthCheck: false };
  const router = await startTestRouter(t, options, { plugins: [plugin] });
  await until('its kind is known', () => router.fleet.workers[0]!.engine === 'sglang');
  const text = `{"input_ids":[${ids}],"seed":9007199254740993}`;
  deepEqual(await race(t, router, '/generate', text, hears), ['small 200', 'large 200']);
  equal(bodies[0]!.toString(), '{"data_parallel_rank":1,"prompt":"x"}');
  ok(bodies[1]!.toString() === `{"data_parallel_rank":1,${text.slice(1)}`);
});

test('others are answered while a large body is made ready for a pair of SGLang', async (t) => {
  const { plugin, hears } = watch();
  const { world, router } = await startPairs(t, [1, 1], {}, { plugins: [plugin] });
  const text = `{"text":"x","y":[${ids}]}`;
  deepEqual(await race(t, router, '/generate', text, hears), ['small 200', 'large 200']);
  for (const [half] of [world.prefill, world.decode]) {
    deepEqual(half!.seen[0]!.text.slice(0, 30), '{"prompt":"x","bootstrap_host"');
    ok(half!.seen[1]!.text.startsWith(text.slice(0, -1)));
  }
});

for (const connector of ['nixl', 'mooncake'] as const) {
  test(`${connector}: others are answered while a large body is made ready for a pair of vLLM`, async (t) => {
    const { plugin, hears } = watch();
    const { world, router } = await startVllmPairs(t, connector, [1, 1], {}, { plugins: [plugin] });
    const text = `{"prompt":"x","max_tokens":7,"y":[${ids}]}`;
    deepEqual(await race(t, router, '/v1/completions', text, hears), ['small 200', 'large 200']);
    const [prefill, decode] = [world.prefill[0]!.seen[1]!, world.decode[0]!.seen[1]!];
    ok(prefill.text.startsWith(text.slice(0, -1).replace('"max_tokens":7', '"max_tokens":1')));
    ok(decode.text.startsWith(text.slice(0, -1)));
    deepEqual(prefill.params === '' || decode.params === '', false);
  });
}

test('a client that leaves while its large body is copied affects no other request', async (t) => {
  const { plugin, hears } = watch();
  const { world, router } = await startPairs(t, [1, 1], {}, { plugins: [plugin] });
  const leaving = await connectClient(t, router.url);
  const heard = new Promise<void>((resolve) => hears(resolve));
  leaving.write(request('POST', '/generate', `{"text":"x","y":[${ids}]}`, ['x-large: 1']));
  await heard;
  leaving.reset();
  await untilIdle(router);
  const client = await connectClient(t, router.url);
  for (let i = 0; i < 3; i++) {
    client.write(request('POST', '/generate', `{"text":"x","y":[${ids}]}`));
    equal((await client.answer()).status, 200);
  }
  equal(world.decode[0]!.seen.length, 3);
});

test('a body in chunks of a byte comes as it was sent, at once and on a second try', async (t) => {
  const { engine, client } = await startScene(t, { policy: 'consistent_hash' });
  const text = `{"prompt":"${Array.from({ length: 30_000 }, (_, i) => i).join()}"}`;
  const chunks = Array.from(text, (letter) => `1\r\n${letter}\r\n`).join('');
  const head =
    'POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ntransfer-encoding: chunked';
  client.write(`${head}\r\n\r\n${chunks}0\r\n\r\n`);
  const first = await engine.next();
  ok((await first.payload()).toString() === text);
  first.connection.write(answer(503, '{}'));
  const second = await engine.next();
  ok((await second.payload()).toString() === text);
  second.answer('{}');
  equal((await client.answer()).status, 200);
});
