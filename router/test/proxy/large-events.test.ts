import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { STREAM_HEAD, startEngine } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene, startTestRouter, untilIdle } from '../harness/router.ts';
import { undisturbed } from '../harness/undisturbed.ts';
import { settled, until } from '../harness/within.ts';
import { startPairs } from '../pairs/scene.ts';
import { startVllmPairs } from '../vllm-pairs/scene.ts';
import type { Plugin } from '../../src/plugin.ts';

const big = (bytes: number): string => Array.from({ length: bytes / 8 }, (_, i) => String(i).padStart(7)).join();
const eventOf = (text: string): string => `data: {"x":[${text}]}\n\n`;
const streamOf = (events: readonly string[]): string => `${STREAM_HEAD}${events.map(chunk).join('')}0\r\n\r\n`;
const doubled = (event: Buffer): Buffer => Buffer.from(event.toString('latin1').replace('{', '{{'), 'latin1');

/** Changes every event, and answers when it is told to. */
function waitingPlugin() {
  const calls: { event: Buffer; resolve: (event: Buffer) => void }[] = [];
  const plugin: Plugin = {
    name: 'waits',
    responseEvent: (_x, event) => new Promise((resolve) => calls.push({ event, resolve })),
  };
  const nextCall = async (count: number) => {
    await until(`event ${count} is with the plugin`, () => calls.length >= count);
    return calls[count - 1]!;
  };
  return { plugin, calls, nextCall };
}

for (const when of ['now', 'later'] as const) {
  test(`events of any size are changed ${when}, keep their order, and the next answer on the connection comes after`, async (t) => {
    const sizes = [8, 70_000, 16, 1_200_000, 65_536, 24, 32, 300_000];
    const events = [...sizes.map((size) => eventOf(big(size))), 'data: [DONE]\r\n\r\n'];
    const engine = await startEngine(t, { onRequest: ({ connection }) => connection.write(streamOf(events)) });
    const plugins: Plugin[] = [
      {
        name: 'first',
        responseEvent: (_x, event) => (when === 'now' ? doubled(event) : Promise.resolve().then(() => doubled(event))),
      },
      { name: 'second', responseEvent: (_x, event) => doubled(event) },
    ];
    const router = await startTestRouter(t, { workerUrls: [engine.url] }, { plugins });
    const client = await connectClient(t, router.url);
    client.write(HELLO + HELLO);
    for (let i = 0; i < 2; i++) {
      const got = await client.answer();
      ok(got.text === events.map((event) => event.replace('{', '{{{')).join(''), `${got.text.length} bytes`);
    }
    await untilIdle(router);
  });
}

test('what a stream ends with is an event, however large and without an empty line', async (t) => {
  const event = `data: {${big(300_000)}`;
  const plugins: Plugin[] = [{ name: 'x', responseEvent: (_x, bytes) => doubled(bytes) }];
  const { exchange } = await startScene(t, {}, { plugins });
  ok((await exchange(HELLO, streamOf(['data: {\n\n', event]))).text === `data: {{\n\ndata: {{${big(300_000)}`);
});

test('while an event is with a plugin its engine is paused, and what came before has gone out', async (t) => {
  const { plugin, nextCall, calls } = waitingPlugin();
  const { client, ask, router } = await startScene(t, {}, { plugins: [plugin] });
  const { connection } = await ask(HELLO);
  connection.write(STREAM_HEAD + chunk(eventOf('0')) + chunk(eventOf('1')));
  (await nextCall(1)).resolve(Buffer.from('data: 0\n\n'));
  await client.read(chunk('data: 0\n\n'));
  const held = await nextCall(2);
  const filler = Buffer.alloc(48_000_000, 'x');
  connection.write(`${filler.length.toString(16)}\r\ndata: `);
  connection.write(filler);
  const unsent = await settled('what the engine has sent', () => connection.socket.writableLength);
  ok(unsent > 20_000_000, `all but ${unsent} bytes were read`);
  equal(calls.length, 2);
  held.resolve(Buffer.from('data: 1\n\n'));
  await client.read(chunk('data: 1\n\n'));
  await until('the engine is read on', () => connection.socket.writableLength < unsent);
  client.reset();
  await connection.untilEnded();
  await untilIdle(router);
});

test('a client that leaves while an event is with a plugin: the engine is stopped at once', async (t) => {
  const { plugin, nextCall, calls } = waitingPlugin();
  const ends: unknown[] = [];
  const watcher: Plugin = { name: 'watcher', finished: (x) => ends.push(x.outcome) };
  const { client, ask, router } = await startScene(t, {}, { plugins: [plugin, watcher] });
  const { connection } = await ask(HELLO);
  connection.write(STREAM_HEAD + chunk(eventOf(big(1_000_000))) + chunk(eventOf('1')));
  const { resolve, event } = await nextCall(1);
  client.reset();
  await connection.untilEnded();
  await untilIdle(router);
  resolve(event);
  await until('the end is told', () => ends.length > 0);
  deepEqual([ends, calls.length], [['client_left'], 1]);
});

test('a client that stops reading in the middle of a large event, and leaves: others are answered, nothing stays', async (t) => {
  const plugins: Plugin[] = [{ name: 'same', responseEvent: (_x, event) => event }];
  const engine = await startEngine(t, {
    onRequest: ({ connection, target }) => connection.write(streamOf([eventOf(big(Number(target.slice(1))))])),
  });
  const router = await startTestRouter(t, { workerUrls: [engine.url] }, { plugins });
  const slow = await connectClient(t, router.url);
  slow.write(request('GET', '/16000000'));
  await slow.read('data: ', 20_000);
  slow.stall();
  equal((await send(t, router.url, request('GET', '/80'))).text, eventOf(big(80)));
  slow.reset();
  await untilIdle(router);
});

for (const dies of ['inside the event', 'behind it'] as const) {
  test(`an engine that dies ${dies}: the client gets what was whole, and no end`, async (t) => {
    const { plugin, nextCall } = waitingPlugin();
    const { client, ask, router } = await startScene(t, {}, { plugins: [plugin] });
    const { connection } = await ask(HELLO);
    const [small, large] = [eventOf('0'), eventOf(big(400_000))];
    connection.write(STREAM_HEAD + chunk(small));
    const first = await nextCall(1);
    connection.socket.end(dies === 'behind it' ? chunk(large) : chunk(large).slice(0, 300_000));
    first.resolve(first.event);
    if (dies === 'behind it') {
      const second = await nextCall(2);
      second.resolve(second.event);
    }
    await client.untilEnded();
    const whole = dies === 'behind it' ? chunk(small) + chunk(large) : chunk(small);
    const got = client.unread.slice(client.unread.indexOf('\r\n\r\n') + 4);
    ok(got.startsWith(whole), `${got.length} bytes, of which the first are ${got.slice(0, 80)}`);
    const rest = got.slice(whole.length);
    if (dies === 'behind it') ok(/^[\da-f]+\r\ndata: \{"error":.*upstream_reset/.test(rest), rest.slice(0, 200));
    else equal(rest, '');
    equal(got.endsWith('0\r\n\r\n'), false);
    await untilIdle(router);
  });
}

test(
  'the request timeout while an event is with a plugin: 504 where it is the first one, else a cut without a word',
  undisturbed(500, async (t) => {
    const { plugin, calls } = waitingPlugin();
    const { client, engine, router } = await startScene(t, { requestTimeoutSecs: 0.5 }, { plugins: [plugin] });
    engine.onRequest = ({ connection }) => connection.write(STREAM_HEAD + chunk(eventOf('0')) + chunk(eventOf('1')));
    client.write(HELLO);
    equal((await client.answer()).status, 504);
    const before = calls.length;
    const other = await connectClient(t, router.url);
    other.write(HELLO);
    await until('the plugin has the first event', () => calls.length > before || other.bytesReceived > 0);
    const { event, resolve } = calls[before]!;
    resolve(event);
    await until('the plugin has the second event', () => calls.length > before + 1 || other.hasEnded);
    equal(calls.length, before + 2);
    await other.untilEnded();
    ok(!other.unread.includes('error') && !other.unread.includes('[1]'), other.unread);
    await untilIdle(router);
  }),
);

for (const [prefill, decode] of [
  [1_000_000, 8],
  [80_000, 80_000],
  [8, 1_000_000],
  [8, 8],
] as const) {
  test(`pairs: lists of ${prefill} and ${decode} bytes are merged in every event of a stream`, async (t) => {
    const { world, router } = await startPairs(t, [1, 1]);
    const said = (list: string, n = '18446744073709551615'): string =>
      `{"meta_info":{"n":${n},"input_token_logprobs":[${list}]}}`;
    // Two events, of which each has them, as SGLang's have.
    world.says = (half) =>
      half === 'prefill' ? said(big(prefill)) : `${said(big(decode))}\n\ndata: {}\n\ndata: ${said(big(decode), '2')}`;
    const got = await send(t, router.url, post('/generate', { text: 'a', return_logprob: true, stream: true }));
    const list = `${big(prefill)},${big(decode)}`;
    ok(got.text === `data: ${said(list)}\n\ndata: {}\n\ndata: ${said(list, '2')}\n\ndata: [DONE]\n\n`);
    await untilIdle(router);
  });

  test(`pairs of vLLM: ${prefill} bytes are put into events of ${decode}`, async (t) => {
    const { world, router } = await startVllmPairs(t, 'nixl', [1, 1]);
    const said = (list: string, more: string): string => `"prompt_logprobs":${list},"more":[${more}]`;
    world.says = (half) => said(half === 'prefill' ? `[${big(prefill)}]` : 'null', big(decode));
    const got = await send(t, router.url, post('/v1/completions', { prompt: 'a', stream: true }));
    ok(got.text.includes(said(`[${big(prefill)}]`, big(decode))), got.text.slice(0, 200));
    ok(got.text.endsWith('data: [DONE]\n\n'));
    await untilIdle(router);
  });
}

test('many large events at once: each client gets its own, whoever leaves meanwhile', async (t) => {
  const { world, router } = await startPairs(t, [1, 1]);
  world.says = (half, { text }) =>
    `{"n":${/"n":(\d+)/.exec(text)![1]},"meta_info":{"input_token_logprobs":[${half === 'prefill' ? '1' : big(200_000)}]}}`;
  const asks = Array.from({ length: 8 }, (_, n) => post('/generate', { n, return_logprob: true, stream: true }));
  const leavers = await Promise.all(asks.map(() => connectClient(t, router.url)));
  for (const [i, leaver] of leavers.entries()) leaver.write(asks[i]!);
  const got = Promise.all(asks.map((ask) => send(t, router.url, ask)));
  for (const leaver of leavers) leaver.reset();
  for (const [n, { text }] of (await got).entries())
    ok(
      text === `data: {"n":${n},"meta_info":{"input_token_logprobs":[1,${big(200_000)}]}}\n\ndata: [DONE]\n\n`,
      text.slice(0, 80),
    );
  await untilIdle(router);
});
