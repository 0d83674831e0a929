import { deepEqual, equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import type { Plugin } from '../../src/plugin.ts';

const fail = (): never => {
  throw new Error('on purpose');
};
const STREAM = `HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n${chunk('data: 1\n\n')}0\r\n\r\n`;

const phases: Readonly<Record<string, readonly [Partial<Plugin>, engineSays: string]>> = {
  appliesTo: [{ appliesTo: fail }, ''],
  requestBody: [{ requestBody: fail }, ''],
  'requestBody, later': [
    { requestBody: () => new Promise((_, reject) => setTimeout(() => reject(new Error('on purpose')), 10)) },
    '',
  ],
  responseHead: [{ responseHead: fail }, answer(200, 'x')],
  responseBody: [{ responseBody: fail }, answer(200, 'x')],
  'responseEvent, at once': [{ responseEvent: fail }, STREAM],
};

for (const [phase, [failing, engineSays]] of Object.entries(phases)) {
  test(`a plugin that throws in ${phase}: 500 that names it, finished once, and the router goes on`, async (t) => {
    const ends: unknown[] = [];
    const applies = failing.appliesTo ?? (() => true);
    const plugin: Plugin = {
      name: 'clumsy',
      ...failing,
      appliesTo: (x) => x.path === '/fail' && applies(x),
    };
    const watcher: Plugin = { name: 'watcher', finished: (x) => ends.push([x.path, x.outcome, x.status]) };
    const { client, engine, router } = await startScene(t, {}, { plugins: [plugin, watcher] });
    engine.onRequest = ({ connection, target }) =>
      connection.write(target === '/fail' ? engineSays : answer(200, 'ok'));
    client.write(request('POST', '/fail', '{}'));
    const got = await client.answer();
    deepEqual([got.status, got.get('x-turnout-error')], [500, 'plugin_failed']);
    match(got.text, /clumsy.*on purpose/);
    await untilIdle(router);
    await until('the end is told', () => ends.length > 0);
    deepEqual(ends, [['/fail', 'refused', 500]]);
    client.write(HELLO);
    equal((await client.answer()).text, 'ok');
  });
}

test('a plugin that throws in finished affects no other request', async (t) => {
  const { exchange, router } = await startScene(t, {}, { plugins: [{ name: 'clumsy', finished: fail }] });
  for (let i = 0; i < 2; i++) equal((await exchange(HELLO, answer(200, 'ok'))).text, 'ok');
  await untilIdle(router);
});

test('a plugin that fails in the middle of a stream: the response is truncated, and the engine is aborted', async (t) => {
  const plugin: Plugin = { name: 'clumsy', responseEvent: (_x, event) => (event.includes('bad') ? fail() : event) };
  const { ask, client, router } = await startScene(t, {}, { plugins: [plugin] });
  const asked = await ask(HELLO);
  asked.beginStream();
  asked.connection.write(chunk('data: good\n\n'));
  await client.read(chunk('data: good\n\n'));
  asked.connection.write(chunk('data: bad\n\n'));
  await client.untilEnded();
  equal(client.hasLastChunk, false);
  await asked.connection.untilEnded();
  await untilIdle(router);
});

test('a client that leaves while requestBody still works: no engine is asked, and the router goes on', async (t) => {
  const started = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const ends: unknown[] = [];
  const plugin: Plugin = {
    name: 'slow',
    async requestBody(_x, body) {
      started.resolve();
      await release.promise;
      return body;
    },
    finished: (x) => ends.push(x.outcome),
  };
  const { client, engine, router } = await startScene(t, {}, { plugins: [plugin] });
  client.write(request('POST', '/x', '{}'));
  await started.promise;
  client.reset();
  await untilIdle(router);
  release.resolve();
  await until('the end is told', () => ends.length > 0);
  deepEqual(ends, ['client_left']);
  equal(engine.connections.length, 0);
});

test('the request timeout while requestBody still works: 504', async (t) => {
  const plugin: Plugin = { name: 'never', requestBody: () => new Promise(() => {}) };
  const { client, engine } = await startScene(t, { requestTimeoutSecs: 0.2 }, { plugins: [plugin] });
  client.write(request('POST', '/x', '{}'));
  equal((await client.answer()).status, 504);
  equal(engine.connections.length, 0);
});

test('an engine that breaks off an answer that is held for responseBody: the client gets 502, not an empty end', async (t) => {
  const { ask, client } = await startScene(t, {}, { plugins: [{ name: 'held', responseBody: (_x, body) => body }] });
  const asked = await ask(request('POST', '/generate', '{}'));
  asked.connection.socket.end('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart');
  const got = await client.answer();
  deepEqual([got.status, got.get('x-turnout-error')], [502, 'upstream_reset']);
});

test('finished is called once, however an exchange ends', async (t) => {
  const ends: unknown[] = [];
  const plugin: Plugin = { name: 'w', finished: (x) => ends.push(x.outcome) };
  const { client, ask, exchange } = await startScene(t, { disableRetries: true }, { plugins: [plugin] });
  await exchange(HELLO, answer(200, 'ok'));
  (await ask(HELLO)).connection.writeAndReset('not HTTP, but long enough\r\n');
  equal((await client.answer()).status, 502);
  const asked = await ask(HELLO);
  asked.connection.socket.end('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx');
  await client.untilEnded();
  await until('three ends are told', () => ends.length >= 3);
  deepEqual(ends, ['complete', 'refused', 'cut']);
});
