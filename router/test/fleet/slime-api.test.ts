import { deepEqual, equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { HELLO, startTestRouter } from '../harness/router.ts';

const A = 'http://127.0.0.1:10090';
const B = 'http://127.0.0.1:10091';

test('add_worker takes the URL from the query or from JSON, under either name', async (t) => {
  for (const [target, body] of [
    [`/add_worker?url=${A}`, ''],
    [`/add_worker?worker_url=${A}`, ''],
    [`/add_worker?url=${encodeURIComponent(A)}`, ''],
    ['/add_worker', JSON.stringify({ url: A })],
    ['/add_worker', JSON.stringify({ worker_url: A, unknown: 1 })],
    [`/add_worker?url=${A}`, JSON.stringify({ url: B })],
  ]) {
    const router = await startTestRouter(t);
    const got = await send(t, router.url, request('POST', target!, body));
    equal(got.status, 200);
    equal(got.text, `{"status":"success","worker_urls":{"${A}":0}}`);
    match(got.get('content-type')!, /^application\/json/);
  }
});

test('add_worker and remove_worker without a URL: 400, in SlimeRouter\u2019s words', async (t) => {
  const router = await startTestRouter(t);
  for (const path of ['/add_worker', '/remove_worker']) {
    for (const [target, body] of [
      [path, ''],
      [`${path}?url=`, ''],
      [path, '{}'],
      [path, 'not json'],
      [path, '{"url":5}'],
    ]) {
      const got = await send(t, router.url, request('POST', target!, body));
      equal(got.status, 400);
      equal(got.text, '{"error":"worker_url is required (use query ?url=... or JSON body)"}');
    }
  }
});

test('list_workers answers in the order of adding; adding twice adds once', async (t) => {
  const router = await startTestRouter(t);
  for (const url of [B, A, B, `${A}/`, A]) await send(t, router.url, request('POST', `/add_worker?url=${url}`));
  const got = await send(t, router.url, request('GET', '/list_workers'));
  equal(got.text, `{"urls":["${B}","${A}"]}`);
});

test('worker_urls tells how many requests each worker has under way', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  const under = [0, 1].map(() => send(t, router.url, HELLO));
  const asked = [await engine.next(), await engine.next()];
  const added = await send(t, router.url, request('POST', `/add_worker?url=${A}`));
  deepEqual(JSON.parse(added.text), { status: 'success', worker_urls: { [engine.url]: 2, [A]: 0 } });
  for (const each of asked) each.answer('{}');
  await Promise.all(under);
  const again = await send(t, router.url, request('POST', `/add_worker?url=${A}`));
  deepEqual(JSON.parse(again.text), { status: 'success', worker_urls: { [engine.url]: 0, [A]: 0 } });
});

test('remove_worker removes; removing an unknown one is no error', async (t) => {
  const router = await startTestRouter(t, { workerUrls: [A, B] });
  const first = await send(t, router.url, request('POST', '/remove_worker', JSON.stringify({ url: `${A}/` })));
  deepEqual([first.status, first.text], [200, `{"status":"success","worker_urls":{"${B}":0}}`]);
  const again = await send(t, router.url, request('POST', `/remove_worker?url=${A}`));
  equal(again.status, 200);
  equal((await send(t, router.url, request('GET', '/list_workers'))).text, `{"urls":["${B}"]}`);
});

test('a worker can be removed by the same words that added it', async (t) => {
  const router = await startTestRouter(t);
  for (const url of ['127.0.0.1:10090', 'HTTP://127.0.0.1:10090', 'http://localhost:10090/base/']) {
    equal((await send(t, router.url, request('POST', `/add_worker?url=${url}`))).status, 200);
    await send(t, router.url, request('POST', `/remove_worker?url=${url}`));
    equal((await send(t, router.url, request('GET', '/list_workers'))).text, '{"urls":[]}');
  }
});

test('what can\u2019t be a worker is refused with a reason', async (t) => {
  const router = await startTestRouter(t);
  for (const url of ['ftp://h:1', 'http://user:pass@h:1', 'http://h:1?x=1', 'http://h:99999', 'http://', ' ']) {
    const got = await send(t, router.url, request('POST', '/add_worker', JSON.stringify({ url })));
    equal(got.status, 400, url);
    match((JSON.parse(got.text) as { error: string }).error, /\w/);
  }
  equal((await send(t, router.url, request('GET', '/list_workers'))).text, '{"urls":[]}');
});
