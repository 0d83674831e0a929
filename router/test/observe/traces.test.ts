import { deepEqual, equal, match, notEqual, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { BatchSpanProcessor } from '@opentelemetry/sdk-trace';
import { version } from '../../src/config/version.ts';
import { request, send } from '../harness/client.ts';
import { type EngineRequest, answer, deadUrl, startEngine } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { chunk } from '../harness/message.ts';
import { PairWorld } from '../harness/pairs.ts';
import { type RouterOptions, startTestRouter, untilIdle } from '../harness/router.ts';
import { type TraceCollector, startTraceCollector } from '../harness/trace-collector.ts';
import { until } from '../harness/within.ts';
import { generate, holdersKilled, holdingFirst, startResumeScene } from '../resume/generations.ts';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const PARENT = 'b7ad6b7169203331';
const sampled = `traceparent: 00-${TRACE}-${PARENT}-01`;

/** @returns waits until all spans that have ended are at the collector: a router that closes gives up on them soon. */
function spansCome(t: TestContext, collector: TraceCollector): () => Promise<void> {
  const { mock } = t.mock.method(BatchSpanProcessor.prototype, 'onEnd');
  return () => until('all spans came', () => collector.spans.length >= mock.callCount());
}

/** A router that traces to a collector. `spans` stops it, which sends what is left. */
async function startTraced(t: TestContext, options: RouterOptions) {
  const collector = await startTraceCollector(t);
  const come = spansCome(t, collector);
  const { log, of } = recordedLog('info');
  const router = await startTestRouter(t, { otlpTracesEndpoint: collector.url, ...options }, { log });
  const spans = async () => {
    await untilIdle(router);
    await router.close();
    await come();
    return collector.spans;
  };
  return { router, collector, spans, of };
}

const completes = (asked: EngineRequest): void =>
  void asked.payload().then(() => asked.answer('{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2}}'));

test('a request and its attempt are spans of the trace of the client, and the engine gets the attempt as parent', async (t) => {
  const engine = await startEngine(t, { onRequest: completes });
  const { router, collector, spans } = await startTraced(t, { workerUrls: [engine.url] });
  const fields = [sampled, 'tracestate: vendor=1', 'x-session-id: s-1', 'x-request-id: r-1'];
  equal((await send(t, router.url, post('/v1/completions', { prompt: 'p' }, fields))).status, 200);
  const [whole, attempt] = (await spans()).toSorted((a, b) => a.kind - b.kind);
  equal(collector.spans.length, 2);
  deepEqual([whole!.name, whole!.kind, whole!.traceId, whole!.parent], ['POST /v1/completions', 2, TRACE, PARENT]);
  deepEqual([attempt!.name, attempt!.kind, attempt!.traceId, attempt!.parent], ['attempt', 3, TRACE, whole!.id]);
  const { head } = engine.requests[0]!;
  equal(head.get('traceparent'), `00-${TRACE}-${attempt!.id}-01`);
  equal(head.headText.match(/^traceparent:/gim)!.length, 1);
  equal(head.get('tracestate'), 'vendor=1');
  const of = whole!.attributes;
  equal(of['turnout.session'], 's-1');
  equal(of['turnout.request_id'], 'r-1');
  equal(of['turnout.policy'], 'least_inflight');
  equal(of['http.response.status_code'], 200);
  equal(of['url.path'], '/v1/completions');
  deepEqual([of['gen_ai.usage.input_tokens'], of['gen_ai.usage.output_tokens']], [4, 2]);
  deepEqual(whole!.events, ['choose', 'first byte']);
  const { hostname, port } = new URL(engine.url);
  deepEqual([attempt!.attributes['server.address'], attempt!.attributes['server.port']], [hostname, Number(port)]);
  ok(whole!.ms >= attempt!.ms && attempt!.ms > 0);
  ok(whole!.startMs <= attempt!.startMs && Math.abs(whole!.startMs - Date.now()) < 60_000);
  equal(collector.resource['service.name'], 'turnout');
  equal(collector.resource['service.version'], version);
});

test('a retry: a span for each attempt, the failed one with its reason, and the engine that answers is below the second one', async (t) => {
  const engine = await startEngine(t, { onRequest: completes });
  const dead = await deadUrl();
  const { router, collector, spans } = await startTraced(t, { workerUrls: [dead, engine.url], policy: 'round_robin' });
  for (let i = 0; i < 2; i++) equal((await send(t, router.url, post('/v1/completions', { prompt: 'p' }))).status, 200);
  await spans();
  const failed = collector.named('attempt').find(({ isError }) => isError)!;
  deepEqual([failed.attributes['error.type'], failed.attributes['turnout.worker']], ['connect', dead]);
  const good = collector.named('attempt').find(({ parent, isError }) => parent === failed.parent && !isError);
  equal(good!.attributes['http.request.resend_count'], 1);
  const got = engine.requests.map(({ head }) => head.get('traceparent'));
  ok(got.includes(`00-${good!.traceId}-${good!.id}-01`), got.join());
  equal(collector.named('POST /v1/completions').length, 2);
});

test('a stream has its first token as an event, a hold is a span', async (t) => {
  const engine = await startEngine(t);
  const options = { workerUrls: [engine.url, 'http://127.0.0.1:9'], workerMaxInflight: 1 };
  const { router, collector, spans } = await startTraced(t, options);
  router.fleet.begin(router.fleet.workers[1]!);
  const first = send(t, router.url, post('/v1/completions', { prompt: 'p' }));
  const asked = await engine.next();
  const second = send(t, router.url, post('/v1/completions', { prompt: 'q', stream: true }));
  await until('it is held', () => [...router.pipeline.inFlight].some(({ waiting }) => waiting?.phase === 'held'));
  asked.answer('{}');
  await first;
  const streamed = await engine.next();
  streamed.beginStream();
  streamed.connection.write(`${chunk('data: {}\n\n')}0\r\n\r\n`);
  equal((await second).status, 200);
  router.fleet.finish(router.fleet.workers[1]!);
  await spans();
  const attempt = collector.named('attempt').find(({ events }) => events.includes('first token'))!;
  deepEqual(attempt.events, ['first byte', 'first token']);
  const [hold] = collector.named('hold');
  equal(hold!.parent, attempt.parent);
  equal(hold!.attributes['turnout.reason'], 'workers_full');
  ok(hold!.ms > 0);
});

test('a pair is one attempt, and both engines get it as parent', async (t) => {
  const world = new PairWorld(t);
  const prefill = await world.add('prefill');
  const decode = await world.add('decode');
  const { router, collector, spans } = await startTraced(t, {
    pdDisaggregation: true,
    prefill: [prefill.engine.url],
    decode: [decode.engine.url],
    workerUrls: [],
  });
  equal((await send(t, router.url, post('/generate', { text: 'a' }))).status, 200);
  await spans();
  const [attempt] = collector.named('attempt');
  equal(collector.named('attempt').length, 1);
  equal(attempt!.attributes['turnout.prefill_worker'], prefill.engine.url);
  equal(attempt!.attributes['turnout.worker'], decode.engine.url);
  for (const { seen } of [prefill, decode])
    equal(seen[0]!.request.head.get('traceparent'), `00-${attempt!.traceId}-${attempt!.id}-01`);
});

test('a refused request is a span with its error, and without an attempt', async (t) => {
  const { router, collector, spans } = await startTraced(t, { workerUrls: [] });
  equal((await send(t, router.url, post('/v1/completions', { prompt: 'p' }, [sampled]))).status, 503);
  await spans();
  equal(collector.spans.length, 1);
  const [{ isError, attributes, parent }] = collector.spans as [(typeof collector.spans)[0]];
  deepEqual(
    [isError, attributes['error.type'], attributes['http.response.status_code'], parent],
    [true, 'no_available_workers', 503, PARENT],
  );
});

test('a control request is a span', async (t) => {
  const engines = [await startEngine(t, { onRequest: completes }), await startEngine(t, { onRequest: completes })];
  const { router, spans } = await startTraced(t, { workerUrls: engines.map(({ url }) => url) });
  equal((await send(t, router.url, post('/flush_cache', {}, [sampled]))).status, 200);
  const [span, ...others] = await spans();
  const { name, traceId, parent, attributes } = span!;
  deepEqual([name, traceId, parent, attributes['url.path']], ['POST', TRACE, PARENT, '/flush_cache']);
  deepEqual(others, []);
  for (const { requests } of engines) equal(requests[0]!.head.get('traceparent'), sampled.split(' ')[1]);
});

test('the sampled flag of the client decides; without a parent the ratio, and the engine learns the decision', async (t) => {
  const engine = await startEngine(t, { onRequest: completes });
  const { router, collector, spans } = await startTraced(t, { workerUrls: [engine.url], traceSampleRatio: 0 });
  const unsampled = `00-${TRACE}-${PARENT}-00`;
  const ask = async (...fields: string[]) => {
    equal((await send(t, router.url, post('/v1/completions', { prompt: 'p' }, fields))).status, 200);
    return (await engine.next()).head.get('traceparent')!;
  };
  match(await ask(), /^00-[\da-f]{32}-[\da-f]{16}-00$/);
  equal(await ask(`traceparent: ${unsampled}`), unsampled);
  // Not valid: the trace begins here.
  const restarted = await ask('traceparent: 00-zz-b7ad6b7169203331-01');
  match(restarted, /^00-[\da-f]{32}-[\da-f]{16}-00$/);
  const followed = await ask(sampled);
  notEqual(followed, sampled);
  ok(followed.startsWith(`00-${TRACE}-`) && followed.endsWith('-01'));
  equal((await spans()).length, 2);
  ok(collector.spans.every(({ traceId }) => traceId === TRACE));
});

test('a collector that fails is logged once, its spans are counted, and requests go on', async (t) => {
  const engine = await startEngine(t, { onRequest: completes });
  const { router, collector, of } = await startTraced(t, { workerUrls: [engine.url] });
  collector.instead = (response) => response.writeHead(400).end('no');
  for (let i = 0; i < 3; i++) equal((await send(t, router.url, post('/v1/completions', { prompt: 'p' }))).status, 200);
  await untilIdle(router);
  await router.close();
  const written = () => of('the trace collector does not accept spans: they are dropped (turnout_trace_spans_total)');
  await until('it is logged', () => written().length > 0);
  equal(collector.spans.length, 0);
  const lines = written();
  equal(lines.length, 1);
  equal(lines[0]!['endpoint'], `${collector.url}/v1/traces`);
});

test('without tracing traceparent passes as it is, and there is no metric of spans', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.connection.write(answer(200, '{}')) });
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  await send(t, router.url, post('/v1/completions', { prompt: 'p' }, [sampled]));
  equal(engine.requests[0]!.head.get('traceparent'), `00-${TRACE}-${PARENT}-01`);
  const { text } = await send(t, router.url, request('GET', '/metrics'));
  equal(text.includes('turnout_trace_spans_total{'), false);
});

test('a generation that two engines left is three attempts, the first two with the reason of their end', async (t) => {
  const collector = await startTraceCollector(t);
  const come = spansCome(t, collector);
  const scene = await startResumeScene(t, 'vllm', 2, { otlpTracesEndpoint: collector.url }, holdingFirst(2));
  const body = { prompt: [300, 301, 302], stream: true, seed: 3, max_tokens: 20, ignore_eos: true, logprobs: 1 };
  const asked = generate(scene.router.url, '/v1/completions', body);
  await holdersKilled(scene, 2);
  equal((await asked).finish, 'length');
  await untilIdle(scene.router);
  await scene.router.close();
  await come();
  const attempts = collector.named('attempt').toSorted((a, b) => a.startMs - b.startMs);
  deepEqual(
    attempts.map(({ isError, attributes }) => [isError, attributes['error.type']]),
    [
      [true, 'cut'],
      [true, 'cut'],
      [false, undefined],
    ],
  );
  // The response began in the first one.
  deepEqual(
    attempts.map(({ events }) => events),
    [['first byte', 'first token'], [], []],
  );
});
