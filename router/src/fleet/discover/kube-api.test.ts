import { deepEqual, equal, ok, rejects } from 'node:assert/strict';
import { once } from 'node:events';
import { type RequestListener, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import type { KubeAccess } from './kube-access.ts';
import { KubeError, askJson, getLines } from './kube-api.ts';

async function served(t: TestContext, answer: RequestListener, base = ''): Promise<KubeAccess> {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  const options = { headers: { authorization: 'Bearer T' } };
  return {
    server: new URL(`http://127.0.0.1:${port}${base}`),
    namespace: 'rl',
    options: () => Promise.resolve(options),
  };
}

const patient = { signal: AbortSignal.timeout(60_000), silenceMs: 30_000 };

async function all(lines: AsyncIterable<unknown[]>): Promise<unknown[][]> {
  const got: unknown[][] = [];
  for await (const part of lines) got.push(part);
  return got;
}

test('behind a path, as proxies have it; with what the access says', async (t) => {
  const access = await served(
    t,
    ({ url, headers }, answer) => answer.end(JSON.stringify({ url, authorization: headers.authorization })),
    '/k8s/clusters/c-1/',
  );
  deepEqual(await askJson(access, '/api/v1/pods?a=b', patient), {
    url: '/k8s/clusters/c-1/api/v1/pods?a=b',
    authorization: 'Bearer T',
  });
});

test('a connection on which nothing comes any more counts as dead', async (t) => {
  const access = await served(t, (_, answer) => answer.writeHead(200).write('{"n":1}\n'));
  const got: unknown[][] = [];
  const reading = (async () => {
    for await (const part of getLines(access, '/', { ...patient, silenceMs: 50 })) got.push(part);
  })();
  await rejects(reading, /the API server sent nothing/);
  deepEqual(got, [[], [{ n: 1 }]]);
});

test('a refusal has its status, its words, and how long to wait', async (t) => {
  const access = await served(t, ({ url }, answer) => {
    if (url === '/status') answer.writeHead(429, { 'retry-after': '7' }).end('{"message":"too many"}');
    else answer.writeHead(502).end('<html>');
  });
  const error = await askJson(access, '/status', patient).catch((reason: unknown) => reason);
  ok(error instanceof KubeError);
  deepEqual([error.status, error.message, error.retryAfterMs], [429, '429: too many', 7_000]);
  await rejects(askJson(access, '/proxy', patient), /status 502/);
  await rejects(all(getLines(access, '/proxy', patient)), /status 502/);
});

test('an answer that is cut is an error, one that ends is an end', async (t) => {
  const access = await served(t, ({ url }, answer) => {
    answer.writeHead(200).write('{"n":1}\n{"n"');
    if (url === '/cut') setImmediate(() => answer.destroy());
    else answer.end(':2}\n');
  });
  await rejects(all(getLines(access, '/cut', patient)));
  await rejects(askJson(access, '/cut', patient));
  equal((await all(getLines(access, '/whole', patient))).flat().length, 2);
});

test('closing ends what is being read', async (t) => {
  const access = await served(t, (_, answer) => answer.writeHead(200).flushHeaders());
  const stop = new AbortController();
  const lines = getLines(access, '/', { ...patient, signal: stop.signal });
  deepEqual((await lines.next()).value, []);
  const next = lines.next();
  stop.abort();
  await rejects(next);
});

test('credentials that never come are a failure like another', async (t) => {
  const access = await served(t, (_, answer) => answer.end('{}'));
  const stuck = { ...access, options: () => new Promise<never>(() => {}) };
  const asking = askJson(stuck, '/', { ...patient, headMs: 20 });
  await rejects(asking, /no credentials within 0.02 s/);
});
