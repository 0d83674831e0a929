import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { connectClient, request } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene, startTestRouter, untilIdle } from '../harness/router.ts';
import type { Plugin } from '../../src/plugin.ts';

/** Replaces a text in bytes and touches nothing else. */
const swap = (bytes: Buffer, from: string, to: string): Buffer =>
  Buffer.from(bytes.toString('latin1').replace(from, to), 'latin1');

const BODY = '{ "room": 9223372036854775807, "salt":"old","x":[1e400,-0] , "u":"\u00e9" }';

for (const [what, bytes] of [
  ['of known length', request('POST', '/generate', BODY)],
  ['in chunks', `POST /generate HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n${chunk(BODY)}0\r\n\r\n`],
] as const) {
  test(`requestBody changes one field of a body ${what} and frames it anew, once`, async (t) => {
    const plugin: Plugin = { name: 'salt', requestBody: (_x, body) => swap(body, '"old"', '"a longer one"') };
    const { ask, client } = await startScene(t, {}, { plugins: [plugin] });
    const asked = await ask(bytes);
    const wanted = BODY.replace('"old"', '"a longer one"');
    equal(asked.head.get('content-length'), String(wanted.length));
    equal(asked.head.get('transfer-encoding'), undefined);
    equal((await asked.payload()).toString('latin1'), wanted);
    asked.answer('{}');
    equal((await client.answer()).status, 200);
  });
}

test('requestBody runs for each attempt and knows its worker', async (t) => {
  const dying = await startEngine(t, { onRequest: (r) => void r.payload().then(() => r.connection.reset()) });
  const well = await startEngine(t);
  const plugin: Plugin = { name: 'room', requestBody: (_x, body, worker) => swap(body, 'WORKER', worker.url) };
  const router = await startTestRouter(
    t,
    { workerUrls: [dying.url, well.url], policy: 'round_robin' },
    { plugins: [plugin] },
  );
  const client = await connectClient(t, router.url);
  client.write(request('POST', '/generate', '{"w":"WORKER"}'));
  equal((await (await dying.next()).payload()).toString(), `{"w":"${dying.url}"}`);
  const asked = await well.next();
  equal((await asked.payload()).toString(), `{"w":"${well.url}"}`);
  asked.answer('{}');
  equal((await client.answer()).status, 200);
  await untilIdle(router);
});

test('requestBody may take its time, and several plugins run in their order', async (t) => {
  const append = (name: string, isSlow: boolean): Plugin => ({
    name,
    requestBody(_x, body) {
      const changed = Buffer.concat([body, Buffer.from(name)]);
      return isSlow ? new Promise((resolve) => setTimeout(resolve, 20, changed)) : changed;
    },
  });
  const { ask } = await startScene(t, {}, { plugins: [append('a', true), append('b', false), append('c', true)] });
  const asked = await ask(request('POST', '/x', 'body:'));
  equal((await asked.payload()).toString(), 'body:abc');
});

test('requestBody on a request without a body that leaves it so adds nothing', async (t) => {
  const { ask } = await startScene(t, {}, { plugins: [{ name: 'same', requestBody: (_x, body) => body }] });
  const asked = await ask(request('GET', '/v1/models'));
  equal(asked.head.get('content-length') ?? '0', '0');
});

test('responseHead changes the head; the body passes', async (t) => {
  const plugin: Plugin = { name: 'strip', responseHead: (_x, head) => head.drop('x-secret') };
  const { exchange } = await startScene(t, {}, { plugins: [plugin] });
  for (const [framing, raw] of [
    ['content-length: 5', 'hello'],
    ['transfer-encoding: chunked', '5\r\nhello\r\n0\r\n\r\n'],
  ]) {
    const got = await exchange(HELLO, `HTTP/1.1 200 OK\r\nx-secret: s\r\nX-Kept: k\r\n${framing}\r\n\r\n${raw}`);
    deepEqual([got.get('x-secret'), got.get('x-kept'), got.text], [undefined, 'k', 'hello']);
  }
});

test('responseEvent changes one field of each event, byte-exactly elsewhere, however the bytes are split', async (t) => {
  const plugin: Plugin = { name: 'model', responseEvent: (_x, event) => swap(event, '"m"', '"renamed"') };
  const { ask, client } = await startScene(t, {}, { plugins: [plugin] });
  const events = [
    'data: {"model":"m", "id":12345678901234567890}\n\n',
    ': comment\r\n\r\n',
    'data: {"model":"m"}\r\rdata: [DONE]\n\n',
  ];
  const stream = `${events.map(chunk).join('')}0\r\n\r\n`;
  for (const isSlow of [false, true]) {
    const asked = await ask(request('POST', '/v1/completions', '{}'));
    asked.beginStream();
    if (isSlow) await asked.connection.writeSlowly(stream);
    else asked.connection.write(stream);
    equal((await client.answer()).text, events.join('').replaceAll('"m"', '"renamed"'));
  }
});

test('responseEvent: a dropped event leaves no trace, an event arrives when it is whole', async (t) => {
  const plugin: Plugin = {
    name: 'd',
    responseEvent: (_x, event) => (event.includes('drop') ? Buffer.alloc(0) : event),
  };
  const { ask, client } = await startScene(t, {}, { plugins: [plugin] });
  const asked = await ask(HELLO);
  asked.beginStream();
  asked.connection.write(chunk('data: drop\n\ndata: keep'));
  await client.read('\r\n\r\n');
  asked.connection.write(chunk(' me\n'));
  asked.connection.write(chunk('\n'));
  equal(await client.read('\n\n\r\n'), chunk('data: keep me\n\n'));
  asked.connection.write(`${chunk('data: drop\n\n')}0\r\n\r\n`);
  equal(await client.read('0\r\n\r\n'), '0\r\n\r\n');
});

test('responseBody changes one field of a JSON answer and its length with it', async (t) => {
  const plugin: Plugin = { name: 'id', responseBody: (_x, body) => swap(body, '"old"', '"a longer one"') };
  const { exchange } = await startScene(t, {}, { plugins: [plugin] });
  for (const framed of [
    answer(200, BODY, ['content-type: application/json']),
    `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${chunk(BODY.slice(0, 30))}${chunk(BODY.slice(30))}0\r\n\r\n`,
  ]) {
    const got = await exchange(HELLO, framed);
    equal(got.payload.toString('latin1'), BODY.replace('"old"', '"a longer one"'));
    equal(got.get('content-length'), String(got.payload.length));
  }
  equal(
    (await exchange(request('HEAD', '/'), 'HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n')).get('content-length'),
    '7',
  );
});

test('appliesTo is asked once; a plugin that does not apply leaves every byte alone', async (t) => {
  let asked = 0;
  const plugin: Plugin = {
    name: 'picky',
    appliesTo: (x) => (asked++, x.path === '/mine'),
    responseBody: () => Buffer.from('changed'),
  };
  const { exchange } = await startScene(t, {}, { plugins: [plugin] });
  equal((await exchange(request('GET', '/mine'), answer(200, 'a'))).text, 'changed');
  equal((await exchange(request('GET', '/yours'), answer(200, 'a'))).text, 'a');
  equal(asked, 2);
});
