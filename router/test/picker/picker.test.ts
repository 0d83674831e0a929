import { deepEqual, equal, match, ok, rejects } from 'node:assert/strict';
import { test } from 'node:test';
import { BODY_MODE } from '../../src/picker/messages.ts';
import { metric } from '../admission/metric.ts';
import { until } from '../harness/within.ts';
import { destinationOf, startGateway } from './gateway.ts';

const ENDPOINTS = ['127.0.0.1:7001', '127.0.0.1:7002', '127.0.0.1:7003'];
const workerUrls = ENDPOINTS.map((endpoint) => `http://${endpoint}`);
const byText = (a: string, b: string): number => a.localeCompare(b);
const json = { 'content-type': 'application/json' };

test('requests of a session go to one engine, by a header alone', async (t) => {
  const { router, ask } = await startGateway(t, { workerUrls, policy: 'consistent_hash' });
  for (const session of ['a', 'b', 'c', 'd']) {
    const seen = new Set<string | null>();
    for (let i = 0; i < 4; i++) {
      const processed = ask({ headers: { 'x-session-id': session }, body: ['{}'] });
      const said = await processed.next();
      equal(said.requestHeaders?.response.clearRouteCache, true);
      seen.add(destinationOf(said));
      equal(router.pipeline.inFlight.size, 1);
      await processed.respond();
      await processed.end();
      equal(router.pipeline.inFlight.size, 0);
    }
    equal(seen.size, 1);
    ok(ENDPOINTS.includes([...seen][0]!));
  }
});

test('a full-duplex body decides, and goes back byte for byte', async (t) => {
  const { ask, sendBody, bodyBack } = await startGateway(t, { workerUrls, policy: 'consistent_hash' });
  const parts = ['{"seed": 9007199254740993, "user":', ' "s-1", "prompt": "', 'ä'.repeat(100), '"}'];
  const seen = new Set<string | null>();
  for (let i = 0; i < 3; i++) {
    const processed = ask({ headers: json, body: parts, mode: BODY_MODE.fullDuplex });
    sendBody(processed, parts);
    seen.add(destinationOf(await processed.next()));
    equal((await bodyBack(processed)).toString(), parts.join(''));
    await processed.respond();
    await processed.end();
  }
  equal(seen.size, 1);
  ok(!seen.has(null));
});

test('a buffered body decides after the headers were answered', async (t) => {
  const { ask, sendBody } = await startGateway(t, { workerUrls, policy: 'consistent_hash' });
  const parts = ['{"user": "s-1"}'];
  const processed = ask({ headers: json, body: parts, mode: BODY_MODE.buffered });
  equal(destinationOf(await processed.next()), null);
  sendBody(processed, parts);
  const said = await processed.next();
  ok(said.requestBody !== undefined);
  ok(ENDPOINTS.includes(destinationOf(said)!));
  await processed.respond();
  await processed.end();
});

test('without an engine the client gets the error of the router', async (t) => {
  const { ask, router } = await startGateway(t);
  const { immediateResponse } = await ask({}).next();
  equal(immediateResponse?.status.code, 503);
  const names = immediateResponse.headers.setHeaders.map(({ header }) => header.key);
  ok(names.includes('x-turnout-error') && names.includes('content-type'), names.join());
  match(Buffer.from(immediateResponse.body).toString(), /"code":"no_available_workers"/);
  await until('nothing is in flight', () => router.pipeline.inFlight.size === 0);
});

test('endpoints of the router and control paths of engines are not served through a gateway', async (t) => {
  const { ask } = await startGateway(t, { workerUrls });
  for (const path of ['/workers', '/add_worker?url=http://x', '/pause_generation', '/x/../metrics']) {
    const { immediateResponse } = await ask({ path }).next();
    equal(immediateResponse?.status.code, 403, path);
  }
});

test('what a picker cannot do is refused: at the start, or where the gateway makes it so', async (t) => {
  await rejects(startGateway(t, { resume: 'on', tinker: true }), /--resume, --tinker needs the bytes/);
  const cannotReach = [
    ['http://127.0.0.1:7001@0-1', /a worker URL has no data-parallel rank then/],
    ['http://127.0.0.1:7001/engine', /a worker URL has no path then/],
  ] as const;
  for (const [url, problem] of cannotReach) await rejects(startGateway(t, { workerUrls: [url] }), problem);
  const { ask } = await startGateway(t, { workerUrls, swapSnapshots: '/snapshots/{identity}' });
  const { immediateResponse } = await ask({ headers: json, body: ['{}'] }).next();
  equal(immediateResponse?.status.code, 500);
  match(Buffer.from(immediateResponse.body).toString(), /request_body_mode/);
  for (const workerApi of ['slime', 'sglang', 'vllm'] as const) {
    const { router } = await startGateway(t, { workerApi });
    for (const [url, problem] of cannotReach) {
      const added = [
        await fetch(`${router.url}/add_worker?url=${url}`, { method: 'POST' }),
        await fetch(`${router.url}/workers`, { method: 'POST', body: JSON.stringify({ url }), headers: json }),
      ];
      for (const response of added) {
        equal(response.status, 400, `${workerApi} ${response.url}`);
        match(await response.text(), problem);
      }
    }
    deepEqual(router.fleet.workers, []);
  }
});

test('a gateway that may send the beginning of a body only gets the choice by headers, and the body as it is', async (t) => {
  const { ask, router } = await startGateway(t, { workerUrls, policy: 'cache_aware' });
  const mode = BODY_MODE.bufferedPartial;
  const processed = ask({ headers: { ...json, 'content-length': '1025' }, body: ['x'], mode, responseMode: mode });
  ok(destinationOf(await processed.next()) !== null);
  processed.stream.write({
    requestBody: { body: Buffer.from('{"model":"a","prompt":"the beginning'), endOfStream: false },
  });
  const { headerMutation = null, bodyMutation = null } = (await processed.next()).requestBody!.response;
  deepEqual([headerMutation, bodyMutation], [null, null]);
  await processed.respond();
  processed.stream.write({ responseBody: { body: Buffer.from('the beginning'), endOfStream: false } });
  await processed.next();
  await processed.end();
  await until('it is complete', async () => (await metric(router, 'turnout_requests_total{outcome="complete"}')) === 1);
  const rewritten = ask({ headers: { ...json, 'x-gateway-model-name-rewrite': 'canary' }, body: ['x'], mode });
  const { immediateResponse } = await rewritten.next();
  equal(immediateResponse?.status.code, 500);
  match(
    Buffer.from(immediateResponse.body).toString(),
    /no whole request bodies.*x-gateway-model-name-rewrite changes/,
  );
});

test('the gateway gets other engines to try, the least busy first, and only those of the subset', async (t) => {
  const { ask } = await startGateway(t, { workerUrls, policy: 'round_robin', pickerFallbacks: 2 });
  const first = ask({});
  const [busy] = destinationOf(await first.next())!.split(',');
  const second = ask({});
  const endpoints = destinationOf(await second.next())!.split(',');
  deepEqual(endpoints.toSorted(byText), ENDPOINTS);
  equal(endpoints[2], busy);
  const limited = ask({ subset: ENDPOINTS.slice(1) });
  deepEqual(
    destinationOf(await limited.next())!
      .split(',')
      .toSorted(byText),
    ENDPOINTS.slice(1),
  );
  for (const each of [first, second, limited]) await each.end();
});

test('a request that another engine served counts there', async (t) => {
  const { ask, router } = await startGateway(t, { workerUrls, policy: 'round_robin' });
  const processed = ask({});
  const placed = destinationOf(await processed.next());
  const served = ENDPOINTS.find((endpoint) => endpoint !== placed)!;
  const loads = () =>
    router.fleet.workers
      .filter((worker) => router.fleet.load(worker) > 0)
      .map(({ url }) => url.slice('http://'.length));
  deepEqual(loads(), [placed]);
  await processed.respond(200, served);
  deepEqual(loads(), [served]);
  await processed.end();
  deepEqual(loads(), []);
  const other = ask({});
  const there = ENDPOINTS.find((endpoint) => endpoint !== served)!;
  await other.next();
  await other.respond(200, undefined, there);
  deepEqual(loads(), [there], "by Envoy's attribute");
  await other.end();
});

test('a client that leaves before the response frees its place', async (t) => {
  const { ask, router } = await startGateway(t, { workerUrls });
  const processed = ask({});
  await processed.next();
  processed.stream.cancel();
  await until('nothing is in flight', () => router.pipeline.inFlight.size === 0);
});

test('a gateway that resets the stream of each request, as Envoy does, keeps its connection', async (t) => {
  const { ask, router } = await startGateway(t, { workerUrls });
  const request = async (): Promise<void> => {
    const processed = ask({});
    ok(destinationOf(await processed.next()) !== null);
    await processed.respond();
    processed.stream.cancel();
  };
  // Node.js closes a connection after the first 1,000 resets.
  for (let i = 0; i < 30; i++) await Promise.all(Array.from({ length: 50 }, request));
  await until('nothing is in flight', () => router.pipeline.inFlight.size === 0);
});

test('a time limit holds until the choice: a request that has its engine is in flight until the gateway ends it', async (t) => {
  const options = { workerUrls: workerUrls.slice(0, 1), workerMaxInflight: 1, requestTimeoutSecs: 0.2 };
  const { ask, router } = await startGateway(t, options);
  const first = ask({});
  ok(destinationOf(await first.next()) !== null);
  const second = await ask({}).next();
  equal(second.immediateResponse?.status.code, 504);
  const [worker] = router.fleet.workers;
  equal(router.fleet.load(worker!), 1);
  await first.respond();
  await first.end();
  equal(router.fleet.load(worker!), 0);
  const text = await (await fetch(router.metricsUrl)).text();
  match(text, /^turnout_requests_total\{outcome="complete"\} 1$/m);
});

test('the health of the service, as gateways ask it', async (t) => {
  const { healthOf } = await startGateway(t);
  for (const service of ['', 'liveness', 'readiness', 'envoy.service.ext_proc.v3.ExternalProcessor'])
    equal(await healthOf(service), 1, service);
  equal(await healthOf('other'), 5);
});
