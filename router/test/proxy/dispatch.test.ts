import { deepEqual, equal, match, ok, rejects } from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { type TestContext, test } from 'node:test';
import { answer, deadUrl, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { startScene, startTestRouter, untilIdle } from '../harness/router.ts';
import { settled, until, within } from '../harness/within.ts';
import type { DispatchRequest } from '../../src/listen/dispatch.ts';
import type { ExchangeView, StateKey } from '../../src/phases/exchange-view.ts';
import type { Plugin } from '../../src/plugin.ts';

const GENERATE: DispatchRequest = {
  path: '/generate?a=b',
  body: '{"q":1}',
  headers: { 'content-type': 'application/json' },
};

/** A dispatched request that its engine has got. */
async function begun(t: TestContext, request = GENERATE, options = {}) {
  const { engine, router } = await startScene(t, options);
  const response = router.dispatch(request);
  response.catch(() => {});
  return { engine, router, response, asked: await engine.next() };
}

const watchOutcome = (): { plugin: Plugin; outcome: () => string | null } => {
  let outcome: string | null = null;
  return { plugin: { name: 'watch', finished: (x) => (outcome = x.outcome) }, outcome: () => outcome };
};

test('a request goes out with its method, target, headers and body; the response has status, headers and payload', async (t) => {
  const { asked, response, router } = await begun(t);
  equal(asked.head.line, 'POST /generate?a=b HTTP/1.1');
  equal(asked.head.get('content-type'), 'application/json');
  equal((await asked.payload()).toString(), '{"q":1}');
  asked.connection.write(
    `HTTP/1.1 207 Multi\r\nX-A: b\r\ntransfer-encoding: chunked\r\n\r\n${chunk('one')}3;x\r\ntwo\r\n0\r\nt: u\r\n\r\n`,
  );
  const { status, headers, bytes } = await within(response, 'the response');
  deepEqual([status, headers.get('x-a'), headers.get('transfer-encoding')], [207, 'b', null]);
  match(headers.get('x-request-id')!, /^gnt-/);
  equal((await within(bytes(), 'the payload')).toString(), 'onetwo');
  await untilIdle(router);
});

test('without a body the method is GET', async (t) => {
  const { asked, response } = await begun(t, { path: '/v1/thing' });
  equal(asked.head.line, 'GET /v1/thing HTTP/1.1');
  asked.answer('{}');
  equal((await within((await response).bytes(), 'the payload')).toString(), '{}');
});

test('the payload of a stream comes as it arrives, then the end', async (t) => {
  const { asked, response, router } = await begun(t);
  asked.beginStream();
  const { body, headers } = await within(response, 'the head');
  equal(headers.get('content-type'), 'text/event-stream');
  const parts = body[Symbol.asyncIterator]();
  for (let i = 0; i < 5; i++) {
    asked.connection.write(chunk(`data: ${i}\n\n`));
    equal((await within(parts.next(), 'the next part')).value?.toString(), `data: ${i}\n\n`);
  }
  asked.connection.write('0\r\n\r\n');
  equal((await within(parts.next(), 'the end')).done, true);
  await untilIdle(router);
});

test('a reader that does not read pauses the engine; when it reads on, every byte arrives', async (t) => {
  const { asked, response, router } = await begun(t);
  const total = 48_000_000;
  const { socket } = asked.connection;
  socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${total}\r\n\r\n`);
  const part = Buffer.alloc(1_000_000, 'x');
  let written = 0;
  const writeOn = (): void => {
    while (written < total) {
      written += part.length;
      if (!socket.write(part)) return;
    }
  };
  socket.on('drain', writeOn);
  writeOn();
  const stuckAt = await settled('what the engine could write', () => written);
  ok(stuckAt < 20_000_000, `the engine could write ${stuckAt} bytes to a reader that reads nothing`);
  let read = 0;
  for await (const bytes of (await response).body) read += bytes.length;
  equal(read, total);
  await untilIdle(router);
});

test('a reader that leaves the loop stops the engine', async (t) => {
  const { plugin, outcome } = watchOutcome();
  const { engine, router } = await startScene(t, {}, { plugins: [plugin] });
  const response = router.dispatch(GENERATE);
  const asked = await engine.next();
  asked.beginStream();
  asked.connection.write(chunk('data: 1\n\n'));
  for await (const _ of (await response).body) break;
  await asked.connection.untilEnded();
  equal(outcome(), 'client_left');
  await untilIdle(router);
});

test('a signal has no listener left of requests that have ended, those that were refused at once too', async (t) => {
  const { signal } = new AbortController();
  const router = await startTestRouter(t);
  const refused = await router.dispatch({ ...GENERATE, signal });
  equal(refused.status, 503);
  await refused.bytes();
  equal(getEventListeners(signal, 'abort').length, 0);
  const { asked, response } = await begun(t, { ...GENERATE, signal });
  equal(getEventListeners(signal, 'abort').length, 1);
  asked.answer('{}');
  await (await response).bytes();
  equal(getEventListeners(signal, 'abort').length, 0);
});

test('a signal stops the engine before the response begins, and in the middle of it', async (t) => {
  const early = new AbortController();
  const { engine, router } = await startScene(t);
  const first = router.dispatch({ ...GENERATE, signal: early.signal });
  const asked = await engine.next();
  early.abort(new Error('enough'));
  await rejects(within(first, 'the rejection'), /enough/);
  await asked.connection.untilEnded();
  const late = new AbortController();
  const second = router.dispatch({ ...GENERATE, signal: late.signal });
  const next = await engine.next();
  next.beginStream();
  const bytes = (await second).bytes();
  bytes.catch(() => {});
  late.abort(new Error('stop'));
  await rejects(within(bytes, 'the rejection'), /stop/);
  await next.connection.untilEnded();
  await untilIdle(router);
  await rejects(router.dispatch({ ...GENERATE, signal: AbortSignal.abort(new Error('never')) }), /never/);
});

test('a truncated response throws after what came before it', async (t) => {
  const { asked, response, router } = await begun(t);
  asked.beginStream();
  asked.connection.write(chunk('data: 1\n\n'));
  const parts = (await response).body[Symbol.asyncIterator]();
  equal((await within(parts.next(), 'the first part')).value?.toString(), 'data: 1\n\n');
  asked.connection.reset();
  await rejects(within(parts.next(), 'the error'), { code: 'upstream_reset' });
  await untilIdle(router);
});

test('a request is retried on another worker, and counted, as a client\u2019s', async (t) => {
  const bad = await startEngine(t, { onRequest: (asked) => asked.connection.write(answer(503, 'busy')) });
  const good = await startEngine(t, { onRequest: (asked) => asked.answer('fine') });
  const router = await startTestRouter(t, { workerUrls: [bad.url, good.url], policy: 'round_robin' });
  for (let i = 0; i < 2; i++) {
    const { status, bytes } = await within(router.dispatch(GENERATE), 'the response');
    deepEqual([status, (await bytes()).toString()], [200, 'fine']);
  }
  const metrics = await (await fetch(router.metricsUrl)).text();
  ok(bad.requests.length > 0);
  match(metrics, new RegExp(`turnout_retries_total\\{failure="status"\\} ${bad.requests.length}\n`));
});

test('a refusal is a response with its status and code', async (t) => {
  const router = await startTestRouter(t, { workerUrls: [await deadUrl()] });
  const { status, headers, bytes } = await within(router.dispatch(GENERATE), 'the response');
  deepEqual([status, headers.get('x-turnout-error')], [503, 'no_available_workers']);
  equal((JSON.parse((await bytes()).toString()) as { error: { code: number } }).error.code, 503);
});

test('a request without a valid head is refused, and can\u2019t smuggle header lines', async (t) => {
  const { engine, router } = await startScene(t);
  for (const path of ['/a b', '/a HTTP/1.1\r\nx-evil: 1', '/\u010dx', 'relative']) {
    equal((await within(router.dispatch({ path }), path)).status, 400);
  }
  equal((await router.dispatch({ path: '/a', method: 'CONNECT' })).status, 501);
  await rejects(router.dispatch({ path: '/a', headers: { 'x-a': 'b\r\nx-evil: 1' } }), TypeError);
  const asked = router.dispatch({
    path: '/a',
    body: 'x',
    headers: { 'content-length': '9', 'transfer-encoding': 'chunked' },
  });
  const got = await engine.next();
  deepEqual([got.head.get('content-length'), got.head.get('transfer-encoding')], ['1', undefined]);
  got.answer('');
  await asked;
});

test('the router\u2019s own endpoints answer too', async (t) => {
  const { router } = await startScene(t);
  const { status, bytes } = await within(router.dispatch({ path: '/workers' }), 'the response');
  equal(status, 200);
  match((await bytes()).toString(), /"workers"/);
});

test('keys are checked as for a client, unless the request is trusted', async (t) => {
  const { engine, router } = await startScene(t, { apiKey: ['secret'], adminApiKey: ['root'] });
  const statusOf = async (request: DispatchRequest) => (await within(router.dispatch(request), 'the response')).status;
  equal(await statusOf(GENERATE), 401);
  engine.onRequest = (asked) => asked.answer('{}');
  equal(await statusOf({ ...GENERATE, headers: { authorization: 'Bearer secret' } }), 200);
  equal(await statusOf({ ...GENERATE, isTrusted: true }), 200);
  equal(await statusOf({ path: '/flush_cache', method: 'POST', headers: { authorization: 'Bearer secret' } }), 403);
  equal(await statusOf({ path: '/flush_cache', method: 'POST', isTrusted: true }), 200);
});

test('a body is sent as it is made, no faster than the engine takes it', async (t) => {
  const { engine, router } = await startScene(t, { retryBufferBytes: 100_000 });
  const part = Buffer.alloc(100_000, 'x');
  let made = 0;
  async function* parts() {
    for (; made < 300; made++) yield part;
  }
  engine.onConnection = ({ socket }) => socket.pause();
  const response = router.dispatch({ path: '/generate', body: parts() });
  const stuckAt = await settled('what the engine takes', () => made);
  ok(stuckAt < 200, `${stuckAt} parts were made for an engine that reads nothing`);
  engine.connections[0]!.socket.resume();
  const asked = await engine.next();
  equal(asked.head.get('transfer-encoding'), 'chunked');
  equal((await asked.payload()).length, 30_000_000);
  asked.answer('done');
  equal((await (await response).bytes()).toString(), 'done');
  await untilIdle(router);
});

test('a body whose maker fails ends the request; one that is answered early is not made to its end', async (t) => {
  const { engine, router } = await startScene(t);
  async function* failing() {
    yield Buffer.from('{');
    throw new Error('no more');
  }
  await rejects(within(router.dispatch({ path: '/generate', body: failing() }), 'the rejection'), /no more/);
  const { promise, resolve } = Promise.withResolvers<void>();
  let hasEnded = false;
  async function* endless() {
    try {
      for (;;) {
        yield Buffer.from('{');
        await promise;
      }
    } finally {
      hasEnded = true;
    }
  }
  engine.onRequest = (asked) => asked.connection.write(answer(400, 'bad'));
  const response = await within(router.dispatch({ path: '/generate', body: endless() }), 'the response');
  equal(response.status, 400);
  equal((await response.bytes()).toString(), 'bad');
  resolve();
  await until('the maker has ended', () => hasEnded);
  await untilIdle(router);
});

test('a payload beyond what the caller takes is an error, and stops the engine', async (t) => {
  const { asked, response, router } = await begun(t);
  asked.connection.write('HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n');
  asked.connection.write('x'.repeat(1_001));
  await rejects(within((await response).bytes(1_000), 'the error'), RangeError);
  await asked.connection.untilEnded();
  await untilIdle(router);
});

test('a closing router ends dispatched requests and takes no further ones', async (t) => {
  const { asked, response, router } = await begun(t);
  asked.beginStream();
  const bytes = (await response).bytes();
  bytes.catch(() => {});
  const closed = router.close();
  await asked.connection.untilEnded();
  await rejects(within(bytes, 'the error'), { code: 'shutting_down' });
  await closed;
  const late = await within(router.dispatch(GENERATE), 'the refusal');
  deepEqual([late.status, late.headers.get('x-turnout-error')], [503, 'shutting_down']);
});

test('what the caller sets in a request reaches the phases of its plugin, of no other request', async (t) => {
  const caller: StateKey<string> = {};
  const other: StateKey<string> = {};
  const seen: unknown[] = [];
  const plugin: Plugin = {
    name: 'caller',
    appliesTo: (x) => x.state(caller) !== null,
    requestBody(x, body) {
      x.setState(other, `${x.state(caller)} sent`);
      return body;
    },
    finished(x) {
      seen.push(x.state(caller), x.state(other));
      x.setState(other, null);
      seen.push(x.state(other));
    },
  };
  const { engine, router } = await startScene(t, {}, { plugins: [plugin] });
  for (const prepare of [(x: ExchangeView) => x.setState(caller, 'mine'), () => {}]) {
    const response = router.dispatch({ ...GENERATE, prepare });
    const asked = await engine.next();
    asked.answer('{}');
    await (await response).bytes();
  }
  await untilIdle(router);
  deepEqual(seen, ['mine', 'mine sent', null]);
});

test('a plugin dispatches requests of its own', async (t) => {
  const { engine, router } = await startScene(t, {
    plugin: [`${import.meta.dirname}/../harness/dispatching-plugin.ts`],
  });
  const response = router.dispatch({ path: '/ask' });
  const asked = await engine.next();
  equal(asked.target, '/generate');
  asked.answer('{"text":"hi"}');
  equal((await within((await response).bytes(), 'the payload')).toString(), '{"text":"hi"}');
});
