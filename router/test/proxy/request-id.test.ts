import { deepEqual, equal, match, notEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { HELLO, startScene } from '../harness/router.ts';

test('a request without an id gets one, which engine and client get', async (t) => {
  const { exchange, engine } = await startScene(t);
  const first = (await exchange(HELLO, answer(200, ''))).get('x-request-id');
  const second = (await exchange(HELLO, answer(200, ''))).get('x-request-id');
  match(first!, /^req-[\w-]{12,}$/);
  notEqual(first, second);
  deepEqual(
    engine.requests.map((asked) => asked.head.get('x-request-id')),
    [first, second],
  );
});

test('an id that is made up begins as those of the engines', async (t) => {
  const { exchange } = await startScene(t);
  for (const [target, pattern] of [
    ['/v1/chat/completions', /^chatcmpl-[\da-z]{24}$/],
    ['/v1/completions', /^cmpl-[\da-z]{24}$/],
    ['/generate', /^gnt-[\da-z]{24}$/],
    ['/v1/responses?a=b', /^resp-[\da-z]{24}$/],
    ['/v1/messages', /^msg_[\da-z]{24}$/],
    ['/v1/embeddings', /^req-[\da-z]{24}$/],
  ] as const)
    match((await exchange(request('POST', target, '{}'), answer(200, ''))).get('x-request-id')!, pattern);
});

test('a client\u2019s id is kept, passed on once and echoed', async (t) => {
  const { exchange, engine } = await startScene(t);
  const got = await exchange(request('GET', '/', '', ['X-Request-ID: mine:1/2']), answer(200, ''));
  equal(got.get('x-request-id'), 'mine:1/2');
  equal(engine.requests[0]!.head.get('x-request-id'), 'mine:1/2');
});

test('an id that the engine answers wins over the router\u2019s', async (t) => {
  const { exchange } = await startScene(t);
  const got = await exchange(HELLO, answer(200, '', ['x-request-id: engine-1']));
  equal(got.get('x-request-id'), 'engine-1');
});

test('an id that does not belong in logs is replaced: too long, spaces, non-ASCII, empty', async (t) => {
  const { exchange, engine } = await startScene(t);
  for (const id of ['x'.repeat(257), 'two words', 'caf\u00e9', '']) {
    const got = await exchange(request('GET', '/', '', [`x-request-id: ${id}`]), answer(200, ''));
    match(got.get('x-request-id')!, /^req-/);
    equal(engine.requests.at(-1)!.head.get('x-request-id'), got.get('x-request-id'));
  }
});

test('the router\u2019s own refusals carry the id too', async (t) => {
  const { client, router } = await startScene(t);
  router.fleet.remove(router.fleet.workers[0]!);
  client.write(request('GET', '/', '', ['x-request-id: lost-one']));
  const got = await client.answer();
  equal(got.status, 503);
  equal(got.get('x-request-id'), 'lost-one');
});
