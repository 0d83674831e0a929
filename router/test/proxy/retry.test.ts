import { deepEqual, equal, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { connectClient, request, send } from '../harness/client.ts';
import { type Engine, type EngineRequest, answer, deadUrl, startEngine } from '../harness/engine.ts';
import { type RouterOptions, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const GENERATE = request('POST', '/generate', '{"text":"x","seed":18446744073709551615}');

/** Answers with these statuses, one after the other, the last one for ever. Notes when each request came. */
async function engineOf(t: TestContext, ...answers: (number | string)[]): Promise<Engine & { times: number[] }> {
  const times: number[] = [];
  let count = 0;
  const onRequest = (asked: EngineRequest): void => {
    times.push(performance.now());
    const next = answers[Math.min(count++, answers.length - 1)]!;
    void asked
      .payload()
      .then(() => asked.connection.write(typeof next === 'string' ? next : answer(next, `{"said":${next}}`)));
  };
  return Object.assign(await startEngine(t, { onRequest }), { times });
}

async function over(t: TestContext, engines: readonly (Engine | string)[], options: RouterOptions = {}) {
  const workerUrls = engines.map((engine) => (typeof engine === 'string' ? engine : engine.url));
  return startTestRouter(t, { workerUrls, policy: 'round_robin', ...options });
}

for (const status of [408, 429, 500, 502, 503, 504]) {
  test(`${status}: the next worker is tried at once, with the same bytes`, async (t) => {
    const [first, second] = [await engineOf(t, status), await engineOf(t, 200)];
    const router = await over(t, [first, second], { retryInitialBackoffMs: 60_000, retryMaxBackoffMs: 60_000 });
    const got = await send(t, router.url, GENERATE);
    equal(got.text, '{"said":200}');
    deepEqual(await second.requests[0]!.payload(), await first.requests[0]!.payload());
    equal(first.requests.length, 1);
    await untilIdle(router);
  });
}

for (const path of ['/v1/chat/completions/batch', '/v1/messages/count_tokens', '/vertex_generate', '/api/chat']) {
  test(`${path} runs a model: it is retried, and an engine that fails it is ejected`, async (t) => {
    const [first, second] = [await engineOf(t, 500), await engineOf(t, 200)];
    const router = await over(t, [first, second], { cbFailureThreshold: 1, maxEjectedPercent: 50 });
    equal((await send(t, router.url, request('POST', path, '{"model":"m"}'))).status, 200);
    equal((await send(t, router.url, request('POST', path, '{"model":"m"}'))).status, 200);
    equal(first.requests.length, 1);
    await untilIdle(router);
  });
}

for (const status of [400, 404, 422, 501, 507]) {
  test(`${status}: it is the answer`, async (t) => {
    const second = await engineOf(t, 200);
    const router = await over(t, [await engineOf(t, status), second]);
    equal((await send(t, router.url, GENERATE)).text, `{"said":${status}}`);
    equal(second.requests.length, 0);
  });
}

test('--retry-statuses says which', async (t) => {
  const router = await over(t, [await engineOf(t, 418), await engineOf(t, 200)], { retryStatuses: [418] });
  equal((await send(t, router.url, GENERATE)).status, 200);
  const other = await over(t, [await engineOf(t, 500), await engineOf(t, 200)], { retryStatuses: [418] });
  equal((await send(t, other.url, GENERATE)).status, 500);
});

test('one worker alone: it is tried again, each time after a longer wait', async (t) => {
  const engine = await engineOf(t, 500, 500, 500, 200);
  const router = await over(t, [engine], { retryInitialBackoffMs: 20 });
  equal((await send(t, router.url, GENERATE)).status, 200);
  const [one, two, three, four] = engine.times as [number, number, number, number];
  // A timer may fire a millisecond early.
  ok(two - one >= 17 && three - two >= 35 && four - three >= 71, `${two - one}, ${three - two}, ${four - three}`);
});

test('when the tries are used up, the last answer passes as it is', async (t) => {
  const engine = await engineOf(t, 500, 500, 503, answer(500, 'the last', ['x-mine: 1', 'retry-after: 1']));
  const router = await over(t, [engine], { retryInitialBackoffMs: 1 });
  const got = await send(t, router.url, GENERATE);
  deepEqual([got.status, got.text, got.get('x-mine'), got.get('x-turnout-error')], [500, 'the last', '1', undefined]);
  equal(engine.requests.length, 4);
  await untilIdle(router);
});

test('two workers: turn and turn about', async (t) => {
  const [first, second] = [await engineOf(t, 503), await engineOf(t, 503)];
  const router = await over(t, [first, second], { retryInitialBackoffMs: 1 });
  equal((await send(t, router.url, GENERATE)).status, 503);
  deepEqual([first.requests.length, second.requests.length], [2, 2]);
});

test('the wait that an engine asks for is kept, up to a limit', async (t) => {
  const engine = await engineOf(t, answer(429, '', ['retry-after: 1']), 200);
  const router = await over(t, [engine], { retryInitialBackoffMs: 1 });
  equal((await send(t, router.url, GENERATE)).status, 200);
  ok(engine.times[1]! - engine.times[0]! >= 995);

  const patient = await engineOf(t, answer(429, 'much later', ['retry-after: 11']), 200);
  const other = await over(t, [patient], { retryInitialBackoffMs: 1 });
  const got = await send(t, other.url, GENERATE);
  deepEqual([got.status, got.text, got.get('retry-after')], [429, 'much later', '11']);
});

test('an engine that cannot be reached is not waited for; the one that answered is tried again', async (t) => {
  const engine = await engineOf(t, 503, 200);
  const router = await over(t, [await deadUrl(), engine], { retryInitialBackoffMs: 1 });
  equal((await send(t, router.url, GENERATE)).status, 200);
  equal(engine.requests.length, 2);
});

test('what changes something is never sent twice: POST to a path that is no generation', async (t) => {
  for (const first of [await engineOf(t, 503), await startEngine(t, { onRequest: (r) => r.connection.reset() })]) {
    const second = await engineOf(t, 200);
    const router = await over(t, [first, second]);
    const got = await send(t, router.url, request('POST', '/v1/files', '{}'));
    ok(got.status === 503 || got.get('x-turnout-error') === 'upstream_reset');
    equal(second.requests.length, 0);
  }
});

test('it may go to another worker when it never reached one', async (t) => {
  const router = await over(t, [await deadUrl(), await engineOf(t, 200)]);
  equal((await send(t, router.url, request('POST', '/v1/files', '{}'))).status, 200);
});

test('what only looks is tried elsewhere on any path', async (t) => {
  const router = await over(t, [await engineOf(t, 503), await engineOf(t, 200)]);
  equal((await send(t, router.url, request('GET', '/v1/models'))).status, 200);
});

test('--disable-retries: the first answer is the answer', async (t) => {
  const router = await over(t, [await engineOf(t, 503), await engineOf(t, 200)], { disableRetries: true });
  equal((await send(t, router.url, GENERATE)).status, 503);
});

test('no wait goes beyond the deadline: the answer passes instead', async (t) => {
  const engine = await engineOf(t, 503, 200);
  const router = await over(t, [engine], { retryInitialBackoffMs: 600_000, retryMaxBackoffMs: 600_000 });
  const got = await send(t, router.url, request('POST', '/generate', '{}', ['x-turnout-timeout: 60']));
  deepEqual([got.status, got.text], [503, '{"said":503}']);
});

test('a client that leaves during the wait ends it', async (t) => {
  const engine = await engineOf(t, 503, 200);
  const router = await over(t, [engine], { retryInitialBackoffMs: 600_000, retryMaxBackoffMs: 600_000 });
  const client = await connectClient(t, router.url);
  client.write(GENERATE);
  await engine.next();
  await until('the exchange waits', () => [...router.pipeline.inFlight].every((x) => x.failures.length === 1));
  client.reset();
  await untilIdle(router);
  equal(engine.requests.length, 1);
});

test('an outage is not multiplied: beyond the budget the errors pass', async (t) => {
  const engines = [await engineOf(t, 503), await engineOf(t, 503)];
  const router = await over(t, engines, { retryInitialBackoffMs: 0, retryBudget: 0, disableCircuitBreaker: true });
  const beganMs = performance.now();
  for (let i = 0; i < 100; i++) equal((await send(t, router.url, GENERATE)).status, 503);
  const secs = (performance.now() - beganMs) / 1000;
  const hits = engines[0]!.requests.length + engines[1]!.requests.length;
  // 100 of its own, 100 saved up, ten a second.
  ok(hits >= 200 && hits <= 202 + 10 * secs, `${hits} requests at the engines in ${secs} s`);
});

test('an answer that is thrown away with its body leaves the connection usable', async (t) => {
  const first = await engineOf(t, 503, 200);
  const router = await over(t, [first], { retryInitialBackoffMs: 1 });
  equal((await send(t, router.url, GENERATE)).status, 200);
  equal(first.connections.length, 1);
});

test('a long error answer that is thrown away is not read to its end', async (t) => {
  const first = await startEngine(t, {
    onRequest: (asked) => asked.connection.write('HTTP/1.1 503 Busy\r\ncontent-length: 1000000000\r\n\r\nbeginning'),
  });
  const router = await over(t, [first, await engineOf(t, 200)]);
  equal((await send(t, router.url, GENERATE)).status, 200);
  await first.connections[0]!.untilEnded();
});
