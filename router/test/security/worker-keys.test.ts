import { deepEqual, doesNotMatch, equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { type EngineRequest, startEngine } from '../harness/engine.ts';
import { startScene, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const credentials = ({ head }: EngineRequest): string[] =>
  head.headText.split('\r\n').filter((line) => /authorization|api-key/i.test(line));

test('--worker-api-key takes the place of whatever key came', async (t) => {
  const { ask } = await startScene(t, { workerApiKey: 'engine-key' });
  for (const fields of [
    [],
    ['authorization: Bearer mine'],
    ['Authorization: Basic x', 'AUTHORIZATION: Bearer y'],
    ['X-Api-Key: mine', 'authorization: Bearer mine'],
  ]) {
    const asked = await ask(request('POST', '/generate', '{}', [...fields, 'x-authorization: kept']));
    deepEqual(credentials(asked), ['x-authorization: kept', 'authorization: Bearer engine-key']);
    asked.answer('{}');
  }
});

test('a worker\u2019s own key goes to it alone, is shown by nothing, and can be replaced', async (t) => {
  const engines = await Promise.all([1, 2].map(() => startEngine(t, { onRequest: (asked) => asked.answer('{}') })));
  const router = await startTestRouter(t, { workerApiKey: 'shared-key', policy: 'round_robin' });
  const add = async (body: object) => send(t, router.url, request('POST', '/workers', JSON.stringify(body)));
  const [own, other] = engines as [(typeof engines)[0], (typeof engines)[0]];
  for (const got of [await add({ url: own.url, api_key: 'own-key' }), await add({ url: other.url, api_key: null })]) {
    equal(got.status, 202);
    doesNotMatch(got.text, /own-key|shared-key/);
  }
  const shown = await send(t, router.url, request('GET', '/workers'));
  doesNotMatch(shown.text, /own-key|shared-key|api_key|authorization/);
  for (let i = 0; i < 2; i++) await send(t, router.url, request('POST', '/generate', '{}'));
  deepEqual(credentials(own.requests[0]!), ['authorization: Bearer own-key']);
  deepEqual(credentials(other.requests[0]!), ['authorization: Bearer shared-key']);

  await add({ url: own.url, api_key: 'new-key' });
  for (let i = 0; i < 2; i++) await send(t, router.url, request('POST', '/generate', '{}'));
  deepEqual(credentials(own.requests[1]!), ['authorization: Bearer new-key']);
  const bad = await add({ url: own.url, api_key: 'a\r\nx-evil: 1' });
  equal(bad.status, 400);
  doesNotMatch(bad.text, /evil/);
});

test('health and other questions carry the key too', async (t) => {
  const heads: string[] = [];
  const engine = await startEngine(t, {
    onConnection: (connection) =>
      connection.socket.once('data', (bytes: Buffer) => heads.push(bytes.toString('latin1'))),
  });
  await startTestRouter(t, {
    workerUrls: [engine.url],
    disableHealthCheck: false,
    healthCheckIntervalSecs: 0.05,
    workerApiKey: 'engine-key',
  });
  await until('questions were asked', () => engine.questions.length > 3);
  for (const head of heads) match(head, /\r\nauthorization: Bearer engine-key\r\n/i);
});

test('--send-api-key-to-workers: the first key, in place of the client\u2019s', async (t) => {
  const { ask } = await startScene(t, { apiKey: ['first-key', 'second-key'], sendApiKeyToWorkers: true });
  const asked = await ask(request('POST', '/generate', '{}', ['authorization: Bearer second-key']));
  deepEqual(credentials(asked), ['authorization: Bearer first-key']);
});
