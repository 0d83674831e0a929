import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { wire } from '../harness/message.ts';
import { HELLO, startScene } from '../harness/router.ts';

test('a JSON answer reaches the client byte for byte, with fields the router never heard of', async (t) => {
  const { exchange } = await startScene(t);
  const body = '{"meta_info":{"routed_experts":"AAECAw==","id":12345678901234567890},"x":[1E5, 0.10],"\\u0000":null }';
  const got = await exchange(request('POST', '/generate', '{}'), answer(200, body));
  equal(got.payload.toString('latin1'), body);
});

test('any status and reason pass: unusual, unknown, empty, without the space before', async (t) => {
  const { client, ask } = await startScene(t, { disableRetries: true });
  for (const line of [
    '200 OK',
    '201 Made: \u00e9',
    '299 ',
    '299',
    "418 I'm a teapot",
    '425 Too Early',
    '429 Slow down',
    '500 ',
    '503 Paused for weights',
    '599 Whatever',
  ]) {
    const asked = await ask(HELLO);
    asked.connection.write(`HTTP/1.1 ${line}\r\ncontent-length: 2\r\n\r\nok`);
    const got = await client.answer();
    // The space behind the code is owed even where nothing follows it (RFC 9112 section 4).
    equal(got.line, `HTTP/1.1 ${line === '299' ? '299 ' : line}`);
    equal(got.text, 'ok');
  }
});

test('answer header lines keep their order, case and repetitions', async (t) => {
  const { exchange } = await startScene(t);
  const lines = [
    'Server: uvicorn',
    'Set-Cookie: a=1; Path=/',
    'Content-Type: application/x-msgpack; v="1, 2"',
    'set-cookie: b=2',
    'X-Odd:  spaced \t',
    'Content-Length: 2',
    'SET-COOKIE: c=3',
    'x-empty:',
    'X-Request-Id: from-the-engine',
  ];
  const got = await exchange(HELLO, `HTTP/1.1 200 OK\r\n${lines.join('\r\n')}\r\n\r\nok`);
  deepEqual(got.text, 'ok');
  deepEqual(got.headText.split('\r\n').slice(1, -2), lines);
});

test('every content type passes: none, nonsense, twice', async (t) => {
  const { exchange } = await startScene(t);
  for (const types of [
    [],
    ['content-type: nonsense'],
    ['content-type: text/plain', 'content-type: application/json'],
    ['content-type: text/event-streamish'],
    ['content-type:'],
  ]) {
    const got = await exchange(HELLO, answer(200, '{"a":1}', types));
    deepEqual(
      got.fields.filter(([name]) => name === 'content-type').map(([name, value]) => `${name}: ${value}`.trim()),
      types,
    );
    equal(got.text, '{"a":1}');
  }
});

test('a binary answer of 3 MB reaches the client unchanged, by length and in chunks', async (t) => {
  const { client, ask } = await startScene(t);
  const body = Buffer.alloc(3_000_000, Buffer.from(Array.from({ length: 251 }, (_, i) => (i * 7) & 0xff)));
  let asked = await ask(HELLO);
  asked.connection.write(Buffer.concat([wire(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n`), body]));
  equal((await client.answer()).payload.equals(body), true);

  asked = await ask(HELLO);
  asked.connection.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n');
  for (let at = 0, size = 1; at < body.length; at += size, size = size * 3 + 1) {
    const part = body.subarray(at, at + size);
    asked.connection.write(Buffer.concat([wire(`${part.length.toString(16)}\r\n`), part, wire('\r\n')]));
  }
  asked.connection.write('0\r\n\r\n');
  equal((await client.answer()).payload.equals(body), true);
});

test('a compressed answer is not unpacked', async (t) => {
  const { exchange } = await startScene(t);
  const packed = '\x1f\x8b\x08\x00not really gzip\x00\xff';
  const got = await exchange(HELLO, answer(200, packed, ['content-encoding: gzip', 'vary: accept-encoding']));
  equal(got.raw.toString('latin1'), packed);
  equal(got.get('content-encoding'), 'gzip');
});

test("an engine's own error passes untouched", async (t) => {
  const { engine, exchange } = await startScene(t, { disableRetries: true });
  for (const status of [400, 404, 422, 429, 500, 502, 503]) {
    const got = await exchange(HELLO, answer(status, `{"error":"mine ${status}"}`, ['retry-after: 7']));
    equal(got.status, status);
    equal(got.text, `{"error":"mine ${status}"}`);
    equal(got.get('retry-after'), '7');
    equal(got.get('x-turnout-error'), undefined);
  }
  equal(engine.requests.length, 7);
});
