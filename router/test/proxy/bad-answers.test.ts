import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { answer, startEngine } from '../harness/engine.ts';
import { HELLO, startScene, untilIdle } from '../harness/router.ts';

const bad: Readonly<Record<string, string>> = {
  'Content-Length and Transfer-Encoding together':
    'HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n',
  'two lengths': 'HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd',
  'a length that is not a number': 'HTTP/1.1 200 OK\r\ncontent-length: +3\r\n\r\nabc',
  'an unknown coding': 'HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n',
  'two codings': 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
  'an unasked 101': 'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n',
  'another program': 'SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n',
  'HTTP/2': 'HTTP/2 200 OK\r\ncontent-length: 0\r\n\r\n',
  'a folded line': 'HTTP/1.1 200 OK\r\nx: a\r\n  b\r\ncontent-length: 0\r\n\r\n',
  'a space before the colon': 'HTTP/1.1 200 OK\r\ncontent-length : 0\r\n\r\n',
  'bare LF': 'HTTP/1.1 200 OK\ncontent-length: 0\n\n',
  'a NUL in a value': 'HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 0\r\n\r\n',
  'a bare CR': 'HTTP/1.1 200 OK\r\nx: a\rset-cookie: b\r\ncontent-length: 0\r\n\r\n',
  'a status of two digits': 'HTTP/1.1 20 OK\r\ncontent-length: 0\r\n\r\n',
  'a head without end': `HTTP/1.1 200 OK\r\n${'x: y\r\n'.repeat(12_000)}`,
  'a line without end': `HTTP/1.1 200 OK\r\nx: ${'y'.repeat(70_000)}`,
  'a status line without end': `HTTP/1.1 200 ${'O'.repeat(70_000)}`,
};

for (const [what, bytes] of Object.entries(bad)) {
  test(`an answer with ${what} becomes 502 and nothing of it leaks`, async (t) => {
    const { exchange, engine, router } = await startScene(t);
    const got = await exchange(HELLO, bytes);
    equal(got.status, 502);
    equal(got.get('x-turnout-error'), 'upstream_bad_answer');
    equal(got.get('set-cookie'), undefined);
    await engine.connections[0]!.untilEnded();
    equal((await exchange(HELLO, answer(200, 'next'))).text, 'next');
    await untilIdle(router);
  });
}

test('a malformed answer is not tried at another engine: the first one did the work', async (t) => {
  const other = await startEngine(t);
  const { exchange, router } = await startScene(t);
  router.fleet.add(other.url);
  equal((await exchange(HELLO, 'nonsense, and lots of it\r\n\r\n')).status, 502);
  equal(other.requests.length, 0);
});

test('an endless flood of 1xx ends in 502', async (t) => {
  const { exchange } = await startScene(t);
  equal((await exchange(HELLO, 'HTTP/1.1 102 Processing\r\n\r\n'.repeat(10_100))).status, 502);
});
