import { deepEqual, equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { HELLO, startScene } from '../harness/router.ts';

test('an absolute URL as target: its path goes to the worker, its authority chooses nothing', async (t) => {
  const { client, ask, engine } = await startScene(t);
  for (const [target, path] of [
    ['http://evil.example/v1/models?a=b', '/v1/models?a=b'],
    ['HTTPS://evil.example:99', '/'],
    ['http://[::1]:8080?x', '/?x'],
  ]) {
    const asked = await ask(request('GET', target!));
    deepEqual([asked.target, asked.head.get('host')], [path, new URL(engine.url).host]);
    asked.answer('{}');
    await client.answer();
  }
});

test('OPTIONS * reaches the engine as it is', async (t) => {
  const { ask } = await startScene(t);
  equal((await ask(request('OPTIONS', '*'))).target, '*');
});

test('OPTIONS * stays as it is in front of a worker with a base path', async (t) => {
  const { ask, engine, router } = await startScene(t);
  router.fleet.remove(router.fleet.workers[0]!);
  router.fleet.add(`${engine.url}/base`);
  equal((await ask(request('OPTIONS', '*'))).target, '*');
});

test('a target that begins with // is a path, not an authority', async (t) => {
  const { ask } = await startScene(t);
  equal((await ask(request('GET', '//evil.example/x'))).target, '//evil.example/x');
});

test('another spelling of a router endpoint is still the router\u2019s', async (t) => {
  const { client, engine } = await startScene(t);
  const urls = { urls: [engine.url] };
  for (const target of [
    '/list_workers',
    '//list_workers',
    '/./list_workers',
    '/x/../list_workers',
    '/%6cist_workers?a',
  ]) {
    client.write(request('GET', target));
    deepEqual(JSON.parse((await client.answer()).text), urls);
  }
  equal(engine.requests.length, 0);
});

test('paths that only look like a router endpoint go to the engine', async (t) => {
  const { client, ask } = await startScene(t);
  for (const target of ['/list_workersx', '/v1/list_workers', '/health_generate', '/workersx']) {
    const asked = await ask(request('GET', target));
    equal(asked.target, target);
    asked.answer('{}');
    await client.answer();
  }
});

test('a method that a router endpoint does not take: 405, and the engine never gets it', async (t) => {
  const { client, engine } = await startScene(t);
  client.write(request('POST', '/list_workers', '{}') + request('GET', '/add_worker') + HELLO);
  const first = await client.answer();
  deepEqual([first.status, first.get('allow')], [405, 'GET']);
  const second = await client.answer();
  deepEqual([second.status, second.get('allow')], [405, 'POST']);
  equal((await engine.next()).target, '/hello');
});

test('of a path with parameters a 405 names its own methods, and what would serve the other one', async (t) => {
  const { router } = await startScene(t);
  for (const [method, path, allow, words] of [
    ['GET', '/sessions/a', 'DELETE', /^This path takes DELETE; GET needs --plugin chat-sessions\.$/],
    ['GET', '/sessions/a/finish', 'POST, DELETE', /^This path takes POST, DELETE/],
    ['POST', '/explain/a', 'GET', /^This path takes GET\.$/],
    ['POST', '/sessions', 'GET', /; POST needs --plugin chat-sessions\.$/],
  ] as const) {
    const got = await fetch(router.url + path, { method });
    deepEqual([got.status, got.headers.get('allow')], [405, allow], path);
    match(((await got.json()) as { error: string }).error, words);
  }
});

test('a path that only begins as an endpoint does is answered 404, without methods', async (t) => {
  const { router } = await startScene(t, { swapSnapshots: '/snapshots/{identity}' });
  const path = '/v1/accounts/a/deployments/d/more';
  const got = await fetch(router.url + path);
  deepEqual([got.status, got.headers.get('allow')], [404, null]);
  equal(((await got.json()) as { error: string }).error, `There is no endpoint ${path}.`);
});
