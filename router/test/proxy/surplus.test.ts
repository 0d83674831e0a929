import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { answer } from '../harness/engine.ts';
import { HELLO, startScene } from '../harness/router.ts';

const FORGED = answer(200, 'forged');

test('bytes behind a complete answer are dropped, and the next request goes over a fresh connection', async (t) => {
  const { exchange, engine, client } = await startScene(t);
  for (const answered of [
    answer(200, 'mine'),
    'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nmine\r\n0\r\n\r\n',
  ]) {
    equal((await exchange(HELLO, answered + FORGED)).text, 'mine');
    equal(await engine.connections.at(-1)!.untilEnded(), 'end');
    equal((await exchange(HELLO, answer(200, 'yours'))).text, 'yours');
    equal(client.unread, '');
    await exchange(HELLO, answer(200, 'mine', ['connection: close']));
  }
});

test('a response without a request, on an idle connection, is sent to no client', async (t) => {
  const { exchange, engine } = await startScene(t);
  await exchange(HELLO, answer(200, 'first'));
  engine.connections[0]!.write(FORGED);
  equal(await engine.connections[0]!.untilEnded(), 'end');
  equal((await exchange(HELLO, answer(200, 'second'))).text, 'second');
  equal(engine.connections.length, 2);
});

test('unasked bytes that arrive just before a request do not become its answer', async (t) => {
  const { engine, client, ask } = await startScene(t);
  const first = await ask(HELLO);
  first.answer('"first"');
  equal((await client.answer()).text, '"first"');
  // The router sees both in whichever order: either way the client gets an answer to its own request, or a refusal.
  first.connection.write('garbage that is no answer at all\r\n\r\n');
  client.write(HELLO);
  engine.onRequest = (request) => request.answer('"second"');
  const got = await client.answer();
  equal(got.text === '"second"' || got.status === 502, true, got.headText + got.text);
});

test('an engine that closes an idle connection is no error for anybody', async (t) => {
  const { exchange, engine, router } = await startScene(t);
  await exchange(HELLO, answer(200, '1'));
  engine.connections[0]!.end();
  await engine.connections[0]!.untilEnded();
  equal((await exchange(HELLO, answer(200, '2'))).status, 200);
  equal(router.fleet.workers[0]!.pool.openCount, 1);
});
