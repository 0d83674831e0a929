import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { answer } from '../harness/engine.ts';
import { startScene } from '../harness/router.ts';

const OLD = 'GET /old HTTP/1.0\r\n\r\n';
const CHUNKED = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';

test('an HTTP/1.0 client gets the payload of a chunked answer, ended by the close', async (t) => {
  const { client, ask } = await startScene(t);
  const asked = await ask(OLD);
  equal(asked.head.line, 'GET /old HTTP/1.1');
  asked.connection.write(`${CHUNKED}5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\ntrailer: x\r\n\r\n`);
  equal(await client.untilEnded(), 'end');
  client.end();
  const got = await client.answer();
  equal(got.get('transfer-encoding'), undefined);
  equal(got.get('connection'), 'close');
  equal(got.text, 'hello, world');
  equal(asked.connection.isClosed, false);
});

test('an HTTP/1.0 client sees a reset when a chunked answer breaks off', async (t) => {
  const { client, ask } = await startScene(t);
  const asked = await ask(OLD);
  asked.connection.write(`${CHUNKED}5\r\nhello\r\n`);
  await client.read('hello');
  asked.connection.reset();
  equal(await client.untilEnded(), 'reset');
});

test('an HTTP/1.0 client that asks for keep-alive is closed all the same', async (t) => {
  const { client, exchange } = await startScene(t);
  const got = await exchange('GET / HTTP/1.0\r\nhost: h\r\nconnection: keep-alive\r\n\r\n', answer(200, 'hi'));
  equal(got.text, 'hi');
  equal(await client.untilEnded(), 'end');
});

test('an HTTP/1.0 engine is understood, and its connection used once', async (t) => {
  const { engine, exchange } = await startScene(t);
  for (let i = 0; i < 2; i++) {
    const got = await exchange('GET / HTTP/1.1\r\nhost: h\r\n\r\n', 'HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi');
    equal(got.line, 'HTTP/1.1 200 OK');
    equal(got.text, 'hi');
  }
  equal(engine.connections.length, 2);
});
