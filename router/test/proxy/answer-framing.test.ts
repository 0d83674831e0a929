import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene } from '../harness/router.ts';

const CHUNKED = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';

test('a chunked answer goes out with the very chunk lines the engine wrote', async (t) => {
  const { exchange } = await startScene(t);
  const raw = `${chunk('one')}00a\r\n0123456789\r\n1\r\n\n\r\nB\r\n\r\n0\r\n\r\nmore\r\n0\r\n\r\n`;
  const got = await exchange(HELLO, CHUNKED + raw);
  equal(got.raw.toString('latin1'), raw);
  equal(got.get('transfer-encoding'), 'chunked');
  equal(got.get('content-length'), undefined);
});

test('a chunked answer is the same however its bytes are split', async (t) => {
  const { ask, client } = await startScene(t);
  const raw = `${chunk('a')}${chunk('data: {"x":1}\n\n')}0010\r\n${'z'.repeat(16)}\r\n0\r\n\r\n`;
  const whole = CHUNKED + raw;
  for (const step of [1, 2, 3, 7, 60]) {
    const asked = await ask(HELLO);
    if (step === 1) await asked.connection.writeSlowly(whole);
    else {
      for (let at = 0; at < whole.length; at += step) {
        asked.connection.write(whole.slice(at, at + step));
        await new Promise((resolve) => {
          setImmediate(resolve);
        });
      }
    }
    equal((await client.answer()).raw.toString('latin1'), raw);
  }
});

test('chunk extensions and trailers are cut out, the payload is not', async (t) => {
  const { ask, client } = await startScene(t);
  const raw = '3;a=b\r\none\r\n4;q="\\"";x\r\ntwo!\r\n0;last\r\nX-Trailer: t\r\nset-cookie: s=1\r\n\r\n';
  for (const isSlow of [false, true]) {
    const asked = await ask(HELLO);
    if (isSlow) await asked.connection.writeSlowly(CHUNKED + raw);
    else asked.connection.write(CHUNKED + raw);
    const got = await client.answer();
    equal(got.raw.toString('latin1'), '3\r\none\r\n4\r\ntwo!\r\n0\r\n\r\n');
  }
});

test('trailers that frame a message are cut out of an answer as others are (RFC 9110 6.5.1)', async (t) => {
  const { ask, client } = await startScene(t);
  for (const trailer of ['content-length: 50', 'Transfer-Encoding: chunked', 'authorization: x', 'host: h'])
    for (const isSlow of [false, true]) {
      const asked = await ask(HELLO);
      const raw = `${CHUNKED}3\r\none\r\n0\r\n${trailer}\r\n\r\n`;
      if (isSlow) await asked.connection.writeSlowly(raw);
      else asked.connection.write(raw);
      const got = await client.answer();
      deepEqual([got.status, got.raw.toString('latin1')], [200, '3\r\none\r\n0\r\n\r\n']);
    }
});

test('an answer that ends with its connection reaches the client whole, and ends its connection too', async (t) => {
  const { ask, client } = await startScene(t);
  const asked = await ask(HELLO);
  asked.connection.write('HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nall of ');
  await client.read('all of ');
  asked.connection.write('it');
  asked.connection.end();
  equal(await client.untilEnded(), 'end');
  equal(client.unread, 'it');
  equal(client.received.toString().includes('connection: close'), true);
});

test('an empty answer that ends with its connection', async (t) => {
  const { ask, client } = await startScene(t);
  const asked = await ask(HELLO);
  asked.connection.write('HTTP/1.1 200 OK\r\n\r\n');
  asked.connection.end();
  client.end();
  equal((await client.answer()).payload.length, 0);
  equal(await client.untilEnded(), 'end');
});

test('1xx answers are for the engine\u2019s hop: the client sees only the real one', async (t) => {
  const { exchange, engine } = await startScene(t);
  const got = await exchange(
    HELLO,
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\nok',
  );
  equal(got.status, 202);
  equal(got.get('link'), undefined);
  equal((await exchange(HELLO, 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')).status, 200);
  equal(engine.connections.length, 1);
});

test('3,000 times 102 before the answer: bounded, and the answer arrives', async (t) => {
  const { exchange } = await startScene(t);
  const got = await exchange(
    HELLO,
    `${'HTTP/1.1 102 Processing\r\n\r\n'.repeat(3_000)}HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone`,
  );
  equal(got.text, 'done');
});

test('a head that trickles in byte by byte is understood', async (t) => {
  const { ask, client } = await startScene(t);
  const asked = await ask(HELLO);
  await asked.connection.writeSlowly('HTTP/1.1 200 OK\r\ncontent-type: a/b\r\nContent-Length: 5\r\n\r\nhello');
  const got = await client.answer();
  equal(got.text, 'hello');
  equal(got.get('content-type'), 'a/b');
});

test('parts of a stream arrive as they are written, not at its end', async (t) => {
  const { ask, client } = await startScene(t);
  const asked = await ask(HELLO);
  asked.beginStream();
  await client.read('\r\n\r\n');
  for (let i = 0; i < 20; i++) {
    asked.connection.write(chunk(`data: ${i}\n\n`));
    await client.read(`data: ${i}\n\n`);
  }
  asked.connection.write('0\r\n\r\n');
  await client.read('0\r\n\r\n');
});
