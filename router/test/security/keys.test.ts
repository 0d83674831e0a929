import { deepEqual, doesNotMatch, equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { HELLO, startScene, startTestRouter } from '../harness/router.ts';

const bearer = (key: string): string => `authorization: Bearer ${key}`;

test('with --api-key, nothing but probes is answered without a key, and no engine gets it', async (t) => {
  const { router, engine } = await startScene(t, { apiKey: ['data-key', 'other-key'] });
  const status = async (target: string, fields: string[] = []) =>
    (await send(t, router.url, request('GET', target, '', fields))).status;
  deepEqual(await Promise.all(['/health', '/liveness', '/readiness'].map((path) => status(path))), [200, 200, 200]);
  for (const target of ['/v1/models', '/generate', '/workers', '/metrics', '/get_loads', '/policies', '/', '/nothing'])
    equal(await status(target), 401, target);
  const wrong = [
    'authorization: Bearer wrong',
    'authorization: Bearer',
    'authorization: data-key',
    'authorization: Basic data-key',
    'authorization: Bearer data-key2',
    'authorization: Bearer data-ke',
    'x-api-key: wrong',
    'x-api-key:',
    'api-key: data-key',
  ];
  for (const field of wrong) equal(await status('/workers', [field]), 401, field);
  for (const field of [
    bearer('data-key'),
    bearer('other-key'),
    'AUTHORIZATION:bearer   data-key ',
    'X-Api-Key: data-key',
  ])
    equal(await status('/workers', [field]), 200, field);
  equal(engine.requests.length, 0);
});

test('a 401 says what to send, in the dialect of the API that was called', async (t) => {
  const { router } = await startScene(t, { apiKey: ['data-key'] });
  const got = await send(t, router.url, request('POST', '/v1/chat/completions', '{}'));
  deepEqual([got.status, got.get('www-authenticate'), got.get('x-turnout-error')], [401, 'Bearer', 'unauthorized']);
  deepEqual(JSON.parse(got.text), {
    error: {
      message: 'A valid API key is required: send "authorization: Bearer KEY".',
      type: 'invalid_request_error',
      param: null,
      code: 'unauthorized',
    },
  });
});

test('a key that the router knows ends here; every other credential goes on', async (t) => {
  const { exchange, engine } = await startScene(t, { apiKey: ['data-key'] });
  const ask = async (...fields: string[]) => {
    const answer = exchange(request('GET', '/v1/models', '', fields), 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n');
    equal((await answer).status, 200);
    const { headText } = engine.requests.at(-1)!.head;
    return headText.split('\r\n').filter((line) => /authorization|api-key|cookie/i.test(line));
  };
  deepEqual(await ask(bearer('data-key')), []);
  deepEqual(await ask('X-API-KEY: data-key', bearer('engines-own')), [bearer('engines-own')]);
  deepEqual(await ask(bearer('data-key'), 'x-api-key: engines-own'), ['x-api-key: engines-own']);
  // The same key twice must not get through on the other line.
  deepEqual(await ask(bearer('data-key'), 'x-api-key: data-key', 'cookie: c=1'), ['cookie: c=1']);
});

test('two credentials of a kind are refused: the engine might read the other one', async (t) => {
  const { router } = await startScene(t, { apiKey: ['data-key'] });
  for (const fields of [
    [bearer('data-key'), bearer('wrong')],
    [bearer('wrong'), bearer('data-key')],
    [bearer('data-key'), 'x-api-key: a', 'x-api-key: b'],
  ]) {
    equal((await send(t, router.url, request('GET', '/v1/models', '', fields))).status, 401);
  }
});

test('without keys every credential passes as it came, also twice', async (t) => {
  const { exchange, engine } = await startScene(t);
  const fields = [bearer('a'), 'Authorization:  Basic b', 'x-api-key: c'];
  await exchange(request('GET', '/v1/models', '', fields), 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n');
  const { headText } = engine.requests[0]!.head;
  match(headText, /authorization: Bearer a\r\nAuthorization: {2}Basic b\r\nx-api-key: c\r\n/);
});

test('with both kinds of keys, steering the router needs an admin key', async (t) => {
  const router = await startTestRouter(t, { apiKey: ['data-key'], adminApiKey: ['admin-key'] });
  const ask = async (method: string, target: string, key: string) =>
    (await send(t, router.url, request(method, target, '', key === '' ? [] : [bearer(key)]))).status;
  for (const [method, target] of [
    ['GET', '/workers'],
    ['POST', '/add_worker?url=http://127.0.0.1:9'],
    ['POST', '/remove_worker?url=http://127.0.0.1:9'],
    ['GET', '/list_workers'],
    ['GET', '/get_loads'],
    ['GET', '/policies'],
    ['DELETE', '/workers/00000000-0000-4000-8000-000000000000'],
  ] as const) {
    equal(await ask(method, target, ''), 401, target);
    equal(await ask(method, target, 'data-key'), 403, target);
    doesNotMatch(String(await ask(method, target, 'admin-key')), /40[13]/, target);
  }
  // Ends of sessions are told by those whose sessions they are.
  equal(await ask('DELETE', '/sessions/s', 'data-key'), 200);
  equal(await ask('POST', '/finish_session?session_id=s', 'data-key'), 200);
  equal(await ask('GET', '/metrics', 'data-key'), 200);
  equal(await ask('GET', '/metrics', 'admin-key'), 200);
});

test('with --admin-api-key alone requests are open, and a known key still ends here', async (t) => {
  const { router, ask } = await startScene(t, { adminApiKey: ['admin-key'] });
  equal((await send(t, router.url, request('GET', '/workers'))).status, 401);
  equal((await send(t, router.url, request('GET', '/metrics'))).status, 401);
  const asked = await ask(request('POST', '/generate', '{}', [bearer('admin-key')]));
  equal(asked.head.get('authorization'), undefined);
  asked.answer('{}');
});

test('a body is not waited for when the key is wrong', async (t) => {
  const { client } = await startScene(t, { apiKey: ['data-key'] });
  client.write('POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 100000000\r\n\r\n{');
  equal((await client.answer()).status, 401);
  equal(await client.untilEnded(), 'end');
});

test('a connection goes on after a 401', async (t) => {
  const { client, ask } = await startScene(t, { apiKey: ['data-key'] });
  client.write(HELLO);
  equal((await client.answer()).status, 401);
  (await ask(request('GET', '/hello', '', [bearer('data-key')]))).answer('"ok"');
  equal((await client.answer()).text, '"ok"');
});

test('the same rule holds for every spelling of a path', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, {
    workerUrls: [engine.url],
    apiKey: ['data-key'],
    adminApiKey: ['admin-key'],
  });
  for (const target of [
    '/workers',
    '/work%65rs',
    '//workers',
    '/workers/',
    '/v1/../workers',
    '/x/%2e%2e/workers',
    '/./workers?x',
    'http://router.test/workers',
    '/pause',
    '/p%61use',
    '/v1/%2E%2E/pause',
    '//pause',
    '/pause/',
    '/%2fpause',
    '/update%5Fweights_from_disk',
    'http://elsewhere/pause?mode=keep',
    '/v1/load_lora_adapter',
    '/health/../pause',
    '/sessions/x\\..\\..\\workers',
    '/v1\\..\\pause',
  ]) {
    equal((await send(t, router.url, request('POST', target, '{}', [bearer('data-key')]))).status, 403, target);
  }
  equal(engine.requests.length, 0);
});
