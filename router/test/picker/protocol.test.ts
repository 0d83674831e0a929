import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { BODY_MODE } from '../../src/picker/messages.ts';
import { metric } from '../admission/metric.ts';
import { SNAPSHOTS, sceneOf, startSims } from '../harness/swap-scene.ts';
import { startTraceCollector } from '../harness/trace-collector.ts';
import { until } from '../harness/within.ts';
import { type Asked, destinationOf, startGateway } from './gateway.ts';

/**
 * What handlers of the reference pickers are tested for (kubernetes-sigs/gateway-api-inference-extension `pkg/lwepp/handlers`, llm-d/llm-d-router
 * `pkg/epp/handlers`, 2026-08), by behaviour. Not here: `test-epp-endpoint-selection`, by which a client would choose its engine.
 */
const ENDPOINTS = ['127.0.0.1:8080', '127.0.0.1:9090', '127.0.0.2:8080', '127.0.0.2:9090'];
const workerUrls = ENDPOINTS.map((endpoint) => `http://${endpoint}`);
const json = { 'content-type': 'application/json' };
const MIB = 1_048_576;

/** Which endpoints four requests in a row get. */
async function pickedOf(ask: Awaited<ReturnType<typeof startGateway>>['ask'], asked: Asked): Promise<string[]> {
  const seen = new Set<string>();
  for (let i = 0; i < ENDPOINTS.length; i++) {
    const processed = ask(asked);
    seen.add(destinationOf(await processed.next())!);
    await processed.respond();
    await processed.end();
  }
  return [...seen].toSorted();
}

test('the subset: a list, a string, a mix of both, blanks, an address for all its ports; without the key all endpoints', async (t) => {
  const { ask } = await startGateway(t, { workerUrls, policy: 'round_robin' });
  for (const [subset, wanted] of [
    [['127.0.0.1:8080'], ['127.0.0.1:8080']],
    ['127.0.0.1:8080,127.0.0.2:9090', ['127.0.0.1:8080', '127.0.0.2:9090']],
    [['127.0.0.1:8080, 127.0.0.2:8080'], ['127.0.0.1:8080', '127.0.0.2:8080']],
    ['  127.0.0.1:9090 ,  ,  127.0.0.2:8080  ', ['127.0.0.1:9090', '127.0.0.2:8080']],
    ['127.0.0.1', ['127.0.0.1:8080', '127.0.0.1:9090']],
    ['127.0.0.1:8080,127.0.0.2', ['127.0.0.1:8080', '127.0.0.2:8080', '127.0.0.2:9090']],
  ] as const) {
    const picked = await pickedOf(ask, { subset });
    deepEqual(picked, wanted, JSON.stringify(subset));
  }
  deepEqual(await pickedOf(ask, {}), ENDPOINTS);
  deepEqual(await pickedOf(ask, { hints: { 'some-other-key': { stringValue: 'x' } } }), ENDPOINTS);
});

test('a subset that is empty, or of which no endpoint is known, gets 503: it is never ignored', async (t) => {
  const { ask } = await startGateway(t, { workerUrls, policy: 'round_robin' });
  for (const subset of [[], '', ' , ', '192.168.1.1:8080', '127.0.0.1:3000']) {
    const { immediateResponse } = await ask({ subset }).next();
    equal(immediateResponse?.status.code, 503, JSON.stringify(subset));
    match(Buffer.from(immediateResponse.body).toString(), /None of the endpoints that the gateway allows/);
  }
});

test('without endpoints the client gets 503, not a broken stream', async (t) => {
  const { ask } = await startGateway(t);
  equal((await ask({}).next()).immediateResponse?.status.code, 503);
  const withBody = ask({ headers: json, body: ['{}'], mode: BODY_MODE.fullDuplex });
  equal((await withBody.next()).immediateResponse?.status.code, 503);
});

test('names of headers in any case, raw values before values, and lines of one name that stay apart', async (t) => {
  const { ask } = await startGateway(t, { workerUrls, policy: 'consistent_hash' });
  const seen = new Set<string | null>();
  for (let i = 0; i < 4; i++) {
    const processed = ask({
      lines: [
        { key: 'X-Session-Id', value: `not-this-${i}`, rawValue: Buffer.from('s-1') },
        { key: 'x-forwarded-for', value: '1.1.1.1' },
        { key: 'x-forwarded-for', value: '2.2.2.2' },
      ],
    });
    seen.add(destinationOf(await processed.next()));
    await processed.respond();
    await processed.end();
  }
  equal(seen.size, 1);
});

test('a destination that a client sends is replaced', async (t) => {
  const { ask } = await startGateway(t, { workerUrls, policy: 'round_robin' });
  const processed = ask({ headers: { 'x-gateway-destination-endpoint': '10.0.0.1:22' } });
  const said = await processed.next();
  ok(ENDPOINTS.includes(destinationOf(said)!));
  const set = said.requestHeaders!.response.headerMutation!.setHeaders.filter(
    ({ header }) => header.key === 'x-gateway-destination-endpoint',
  );
  // OVERWRITE_IF_EXISTS_OR_ADD of `HeaderAppendAction`.
  deepEqual(
    set.map(({ appendAction }) => appendAction),
    [2],
  );
  await processed.end();
});

test('the headers are answered after the body, also for a gateway that does not say how it sends bodies', async (t) => {
  const { ask, sendBody, bodyBack } = await startGateway(t, { workerUrls, policy: 'consistent_hash' });
  const seen = new Set<string | null>();
  for (const mode of [BODY_MODE.fullDuplex, 'not sent'] as const) {
    const processed = ask({ headers: json, body: ['{}'], mode });
    let hasAnswered = false;
    const answered = processed.next().then((said) => {
      hasAnswered = true;
      return said;
    });
    processed.stream.write({ requestBody: { body: Buffer.from('{"user": '), endOfStream: false } });
    await new Promise(setImmediate);
    equal(hasAnswered, false);
    sendBody(processed, ['"s-1"}']);
    const said = await answered;
    seen.add(destinationOf(said));
    equal(said.requestHeaders!.response.clearRouteCache, true);
    equal((await bodyBack(processed)).toString(), '{"user": "s-1"}');
    await processed.respond();
    await processed.end();
  }
  equal(seen.size, 1);
});

test('trailers of a request go back after its headers and its body, which is not the end then', async (t) => {
  const { ask } = await startGateway(t, { workerUrls, policy: 'consistent_hash' });
  const large = `{"user":"s-1","model":"base","prompt":"${'x'.repeat(300_000)}"}`;
  for (const text of ['{"user":"s-1","model":"base"}', large]) {
    for (const model of ['', 'new']) {
      const headers = model === '' ? json : { ...json, 'x-gateway-model-name-rewrite': model };
      const processed = ask({ headers, body: ['x'], mode: BODY_MODE.fullDuplex });
      processed.stream.write({ requestBody: { body: Buffer.from(text), endOfStream: false } });
      processed.stream.write({ requestTrailers: {} });
      ok(destinationOf(await processed.next()) !== null, 'the headers are first');
      const back: Buffer[] = [];
      for (;;) {
        const { requestBody, requestTrailers } = await processed.next();
        if (requestTrailers) break;
        const { body, endOfStream } = requestBody!.response.bodyMutation!.streamedResponse!;
        ok(endOfStream !== true);
        back.push(body!);
      }
      equal(Buffer.concat(back).toString(), model === '' ? text : text.replace('base', model));
      await processed.respond();
      await processed.end();
    }
  }
});

test('trailers that come after the choice of an engine are answered at once', async (t) => {
  const { ask } = await startGateway(t, { workerUrls, policy: 'round_robin' });
  const processed = ask({ headers: json, body: ['x'], mode: BODY_MODE.fullDuplex });
  ok(destinationOf(await processed.next()) !== null);
  processed.stream.write({ requestBody: { body: Buffer.from('{}'), endOfStream: false } });
  ok((await processed.next()).requestBody);
  processed.stream.write({ requestTrailers: {} });
  ok((await processed.next()).requestTrailers);
  await processed.end();
});

test('a body of 10 MB passes byte for byte, a byte more gets 413', async (t) => {
  const { ask, sendBody, bodyBack, router } = await startGateway(t, {
    workerUrls,
    policy: 'consistent_hash',
    maxPayloadSize: 10 * MIB,
  });
  const parts = Array.from({ length: 160 }, (_, i) => Buffer.alloc(65_536, `${i % 10}`));
  const whole = ask({ headers: json, body: ['x'], mode: BODY_MODE.fullDuplex });
  sendBody(whole, parts);
  ok(destinationOf(await whole.next()) !== null);
  ok(Buffer.concat(parts).equals(await bodyBack(whole)));
  await whole.respond();
  await whole.end();
  const larger = ask({ headers: json, body: ['x'], mode: BODY_MODE.fullDuplex });
  sendBody(larger, [...parts, Buffer.from('x')]);
  equal((await larger.next()).immediateResponse?.status.code, 413);
  await until('nothing is in flight', () => router.pipeline.inFlight.size === 0);
});

test('a buffered body is one message of any size up to the limit', async (t) => {
  const { ask, sendBody } = await startGateway(t, { workerUrls, policy: 'consistent_hash', maxPayloadSize: 10 * MIB });
  const processed = ask({ headers: json, body: ['x'], mode: BODY_MODE.buffered });
  await processed.next();
  sendBody(processed, [Buffer.alloc(10 * MIB, 'x')]);
  ok(destinationOf(await processed.next()) !== null);
  await processed.respond();
  await processed.end();
});

test('the model that the gateway names replaces the one in the body, and only that', async (t) => {
  const { ask, sendBody, bodyBack } = await startGateway(t, { workerUrls, policy: 'round_robin' });
  const text = '{"seed": 9007199254740993, "model": "base", "prompt": "model"}';
  for (const [headers, wanted] of [
    [{ 'x-gateway-model-name-rewrite': 'canary-"2"' }, text.replace('"base"', '"canary-\\"2\\""')],
    [{ 'x-llm-d-model-name-rewrite': 'new', 'x-gateway-model-name-rewrite': 'new' }, text.replace('base', 'new')],
    [{}, text],
  ] as const) {
    const duplex = ask({ headers: { ...json, ...headers }, body: ['x'], mode: BODY_MODE.fullDuplex });
    sendBody(duplex, [text]);
    await duplex.next();
    equal((await bodyBack(duplex)).toString(), wanted);
    const buffered = ask({ headers: { ...json, ...headers }, body: ['x'], mode: BODY_MODE.buffered });
    await buffered.next();
    sendBody(buffered, [text]);
    const mutation = (await buffered.next()).requestBody!.response.bodyMutation;
    equal(mutation === undefined ? text : Buffer.from(mutation.body!).toString(), wanted);
    for (const each of [duplex, buffered]) await each.end();
  }
  const missed = ask({ headers: { 'x-gateway-model-name-rewrite': 'm' }, body: ['x'] });
  const { immediateResponse } = await missed.next();
  equal(immediateResponse?.status.code, 500);
  match(Buffer.from(immediateResponse.body).toString(), /x-gateway-model-name-rewrite changes them/);
});

test('a rewritten model decides which engines may serve it', async (t) => {
  const { ask, router } = await startGateway(t, {
    workerUrls,
    policy: 'round_robin',
    modelPolicy: ['b=least_inflight'],
  });
  const processed = ask({ headers: { 'x-gateway-model-name-rewrite': 'b' }, body: ['x'], mode: BODY_MODE.fullDuplex });
  processed.stream.write({ requestBody: { body: Buffer.from('{"model":"a"}'), endOfStream: true } });
  await processed.next();
  equal([...router.pipeline.inFlight][0]!.model, 'b');
  await processed.end();
});

/** A gateway whose engine has had a weight swap. */
async function startSwapped(t: TestContext) {
  const engines = await startSims(t, ['vllm']);
  const gateway = await startGateway(t, {
    workerUrls: engines.map(({ url }) => url),
    policy: 'round_robin',
    swapSnapshots: SNAPSHOTS,
    healthCheckTimeoutSecs: 60,
  });
  await (await sceneOf(gateway.router, engines)).swap('v1');
  return gateway;
}

test('a rewritten model and the cache namespace of a swap are both in the body', async (t) => {
  const { ask, sendBody, bodyBack } = await startSwapped(t);
  const headers = { ...json, 'x-gateway-model-name-rewrite': 'canary', 'x-session-id': 's' };
  const processed = ask({ headers, body: ['x'], mode: BODY_MODE.fullDuplex });
  sendBody(processed, ['{"seed": 9007199254740993, "model": "base", "prompt": "model"}']);
  await processed.next();
  match(
    (await bodyBack(processed)).toString(),
    /^\{"seed": 9007199254740993, "model": "canary", "prompt": "model", ?"cache_salt": ?"[^"]+"\}$/,
  );
  await processed.end();
});

test('with weight swaps a request gets its cache namespace only: responses cannot be changed to fit other fields', async (t) => {
  const { ask, sendBody, bodyBack } = await startSwapped(t);
  const processed = ask({ headers: { ...json, 'x-session-id': 's' }, body: ['x'], mode: BODY_MODE.fullDuplex });
  const fields =
    '"prompt":"p","stream":true,"stream_options":{"include_usage":true},"echo":true,"logprobs":1,"return_token_ids":true,"raw_output":true';
  sendBody(processed, [`{"model":"base",${fields}}`]);
  await processed.next();
  const sent = (await bodyBack(processed)).toString();
  ok(sent.startsWith(`{"model":"base",${fields},"cache_salt":`), sent);
  await processed.end();
});

test('objectives are priorities: the higher one leaves the queue first, one below 0 does not wait; fairness ids take turns', async (t) => {
  const { ask, router } = await startGateway(t, {
    workerUrls: [workerUrls[0]!],
    maxConcurrentRequests: 1,
    objectives: ['chat=10', 'batch=-1'],
  });
  const running = ask({});
  await running.next();
  const order: string[] = [];
  const served: Promise<void>[] = [];
  const wait = async (name: string, headers: Record<string, string>): Promise<void> => {
    const queued = await metric(router, 'turnout_queue_depth{reason="concurrency"}');
    const processed = ask({ headers });
    const serve = async (): Promise<void> => {
      await processed.next();
      order.push(name);
      await processed.respond();
      await processed.end();
    };
    served.push(serve());
    const depth = () => metric(router, 'turnout_queue_depth{reason="concurrency"}');
    await until(`${name} waits`, async () => (await depth()) === queued + 1);
  };
  const fair = (id: string) => ({ 'x-gateway-inference-fairness-id': id });
  await wait('a1', fair('a'));
  await wait('a2', fair('a'));
  await wait('b1', fair('b'));
  await wait('unknown', { 'x-gateway-inference-objective': 'nosuch' });
  await wait('chat', { 'x-llm-d-inference-objective': 'chat' });
  const { immediateResponse } = await ask({ headers: { 'x-gateway-inference-objective': 'batch' } }).next();
  equal(immediateResponse?.status.code, 429);
  ok(immediateResponse.headers.setHeaders.some(({ header }) => header.key.toLowerCase() === 'retry-after'));
  match(Buffer.from(immediateResponse.body).toString(), /requests of this objective are not queued/);
  await running.respond();
  await running.end();
  await Promise.all(served);
  deepEqual(order, ['chat', 'a1', 'b1', 'unknown', 'a2']);
});

test('response bodies are asked for where the usage in them is wanted, and only there', async (t) => {
  const { none, streamed, buffered, bufferedPartial, fullDuplex } = BODY_MODE;
  for (const [policy, pickerUsage, asked, wanted] of [
    ['rollout', 'auto', {}, streamed],
    ['rollout', 'auto', { responseMode: streamed }, null],
    ['rollout', 'auto', { responseMode: fullDuplex }, null],
    ['rollout', 'auto', { responseMode: bufferedPartial }, streamed],
    ['rollout', 'auto', { mode: fullDuplex }, null],
    ['rollout', 'auto', { method: 'GET', path: '/v1/models', responseMode: streamed }, none],
    ['rollout', 'off', { responseMode: streamed }, none],
    ['round_robin', 'auto', {}, null],
    ['round_robin', 'auto', { responseMode: buffered }, none],
    ['round_robin', 'on', {}, streamed],
  ] as const) {
    const { ask } = await startGateway(t, { workerUrls, policy, pickerUsage });
    const processed = ask(asked);
    const { modeOverride = null } = await processed.next();
    equal(modeOverride?.responseBodyMode ?? null, wanted, `${policy} ${pickerUsage} ${JSON.stringify(asked)}`);
    if (modeOverride !== null) equal(modeOverride.requestBodyMode ?? none, none);
    await processed.respond();
    await processed.end();
  }
});

test('the engine gets the attempt as the parent of its spans, as from the router itself', async (t) => {
  const collector = await startTraceCollector(t);
  const tracing = { otlpTracesEndpoint: collector.url, traceSampleRatio: 0 };
  const { ask, router } = await startGateway(t, { workerUrls, ...tracing });
  const parentOf = async (headers: Record<string, string>): Promise<string | undefined> => {
    const processed = ask({ headers });
    const set = (await processed.next()).requestHeaders!.response.headerMutation!.setHeaders;
    await processed.respond();
    await processed.end();
    const header = set.find((each) => each.header.key === 'traceparent')?.header;
    return header && Buffer.from(header.rawValue!).toString();
  };
  const trace = 'a'.repeat(32);
  const sampled = await parentOf({ traceparent: `00-${trace}-${'b'.repeat(16)}-01` });
  match((await parentOf({}))!, /^00-[\da-f]{32}-[\da-f]{16}-00$/);
  equal(await parentOf({ traceparent: `00-${trace}-${'b'.repeat(16)}-00` }), undefined, 'passes as it is');
  await router.close();
  equal(sampled, `00-${trace}-${collector.named('attempt')[0]!.id}-01`);
});

test('the times of a response: in the metrics, in GET /requests, with and without its body', async (t) => {
  const { ask, router } = await startGateway(t, { workerUrls: [workerUrls[0]], policy: 'round_robin' });
  const gone = ask({});
  await gone.next();
  await gone.respond();
  await gone.end();
  const streamed = ask({ responseMode: BODY_MODE.streamed });
  await streamed.next();
  await streamed.respond();
  streamed.stream.write({ responseBody: { body: Buffer.from('data: {}\n\n'), endOfStream: false } });
  await streamed.next();
  const { requests } = (await (await fetch(`${router.url}/requests`)).json()) as {
    requests: { phase: string; last_byte_secs: number }[];
  };
  deepEqual(
    requests.map(({ phase, last_byte_secs }) => [phase, last_byte_secs < 30]),
    [['streaming', true]],
  );
  streamed.stream.write({ responseBody: { body: Buffer.alloc(0), endOfStream: true } });
  await streamed.next();
  await streamed.end();
  const text = await (await fetch(router.metricsUrl)).text();
  const [, sum] = /^turnout_worker_response_seconds_sum\{.*\} (\S+)$/m.exec(text) ?? [];
  ok(Number(sum) > 0, sum);
  match(text, /^turnout_worker_response_seconds_count\{.*\} 2$/m);
});

test('the usage of a response that was asked for counts; a gateway that ignores it has complete responses too', async (t) => {
  const { ask, router } = await startGateway(t, { workerUrls, policy: 'round_robin', pickerUsage: 'on' });
  const outcomes = { complete: 0, client_left: 0 };
  const count = async (): Promise<typeof outcomes> => {
    for (const outcome of ['complete', 'client_left'] as const) {
      const text = await (await fetch(router.metricsUrl)).text();
      const lines = text.matchAll(new RegExp(`^turnout_requests_total\\{.*outcome="${outcome}".*\\} (\\d+)$`, 'gm'));
      outcomes[outcome] = [...lines].reduce((sum, [, value]) => sum + Number(value), 0);
    }
    return outcomes;
  };
  const ignored = ask({});
  await ignored.next();
  await ignored.respond();
  await ignored.end();
  deepEqual(await count(), { complete: 1, client_left: 0 });
  const obeyed = ask({});
  await obeyed.next();
  await obeyed.respond();
  const usage = '{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}';
  obeyed.stream.write({ responseBody: { body: Buffer.from(usage), endOfStream: true } });
  await obeyed.next();
  await obeyed.end();
  deepEqual(await count(), { complete: 2, client_left: 0 });
  const text = await (await fetch(router.metricsUrl)).text();
  match(text, /^turnout_output_tokens_total\{.*\} 5$/m);
  const left = ask({});
  await left.next();
  await left.respond();
  left.stream.write({ responseBody: { body: Buffer.from('{"cho'), endOfStream: false } });
  await left.next();
  left.stream.cancel();
  await until('it is counted', async () => (await count()).client_left === 1);
});
