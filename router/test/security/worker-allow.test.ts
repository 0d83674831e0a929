import { equal, match, rejects } from 'node:assert/strict';
import { test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { HELLO, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const METADATA = 'http://169.254.169.254/latest/meta-data';

test('metadata addresses are refused in every form of adding a worker', async (t) => {
  const router = await startTestRouter(t);
  for (const url of [
    METADATA,
    'http://[::ffff:169.254.169.254]',
    'http://0xa9.0xfe.0xa9.0xfe',
    'metadata.google.internal',
  ]) {
    for (const bytes of [
      request('POST', `/add_worker?url=${url}`),
      request('POST', '/add_worker', JSON.stringify({ worker_url: url })),
      request('POST', '/workers', JSON.stringify({ url })),
    ]) {
      const got = await send(t, router.url, bytes);
      equal(got.status, 400, url);
      match(got.text, /link-local or metadata/);
    }
  }
  equal(router.fleet.workers.length, 0);
});

test('whoever runs the router may name such an address, unless --worker-allow says otherwise', async (t) => {
  const router = await startTestRouter(t, { workerUrls: [METADATA] });
  equal(router.fleet.workers.length, 1);
  await rejects(
    startTestRouter(t, { workerUrls: ['http://127.0.0.1:1'], workerAllow: ['10.0.0.0/8'] }),
    /--worker-urls: "127.0.0.1" is not allowed by --worker-allow/,
  );
  await rejects(startTestRouter(t, { workerAllow: ['10.0.0.0/99'] }), /--worker-allow: "10.0.0.0\/99" is neither/);
});

test('a name is judged by the address that it leads to, at every connection', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('{}'), host: '127.0.0.1' });
  const url = engine.url.replace('127.0.0.1', 'localhost');
  const allowed = await startTestRouter(t, { workerAllow: ['127.0.0.0/8'] });
  await send(t, allowed.url, request('POST', `/add_worker?url=${url}`));
  equal((await send(t, allowed.url, HELLO)).status, 200);

  const router = await startTestRouter(t, {
    workerAllow: ['10.0.0.0/8'],
    disableHealthCheck: false,
    healthCheckIntervalSecs: 0.05,
  });
  equal((await send(t, router.url, request('POST', `/add_worker?url=${url}`))).status, 200);
  await until('it was found out', () => router.fleet.workers[0]!.reasons !== 0);
  equal((await send(t, router.url, HELLO)).status, 503);
  equal(engine.questions.length, 0);
  equal(engine.requests.length, 1);
});

test('a worker URL that is endless, or carries a password, is refused without being said back', async (t) => {
  const router = await startTestRouter(t);
  const add = async (url: string) => send(t, router.url, request('POST', '/workers', JSON.stringify({ url })));
  equal((await add('/'.repeat(200_000))).status, 400);
  equal((await send(t, router.url, request('POST', '/workers', 'x'.repeat(300_000)))).status, 413);
  for (const url of [
    'http://user:hunter2@[bad',
    'ftp://user:hunter2@host',
    'http://host?token=hunter2',
    'http://u:hunter2@h:1',
  ]) {
    const got = await add(url);
    equal(got.status, 400);
    equal(got.text.includes('hunter2'), false, got.text);
  }
});

test('labels with the names of an object\u2019s own parts are labels like others', async (t) => {
  const router = await startTestRouter(t);
  const body =
    '{"url":"http://127.0.0.1:9","__proto__":"p","constructor":"c","labels":{"__proto__":"l","toString":"t"}}';
  equal((await send(t, router.url, request('POST', '/workers', body))).status, 202);
  const shown = await send(t, router.url, request('GET', '/workers'));
  equal(shown.status, 200);
  match(shown.text, /"constructor":"c"/);
  match(shown.text, /"toString":"t"/);
  equal(({} as Record<string, unknown>)['p'], undefined);
});
