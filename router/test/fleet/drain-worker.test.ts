import { deepEqual, equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { metric } from '../admission/metric.ts';
import { connectClient } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { post, startFleetScene } from '../harness/fleet.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const ask = post('/v1/completions', { prompt: 'Hi' });

async function steer(url: string, path: string, body: object): Promise<{ status: number; text: string }> {
  const response = await fetch(url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: response.status, text: await response.text() };
}

test('a drained worker gets no new requests, stays registered, and comes back', async (t) => {
  const { router, whoGets } = await startFleetScene(t, 2, { policy: 'round_robin' });
  const [first] = router.fleet.workers;
  const path = `/workers/${first!.id}/drain`;
  const { status, text } = await steer(router.url, path, { state: 'on' });
  equal(status, 200);
  deepEqual((JSON.parse(text) as { not_serving_because: string[] }).not_serving_because, ['draining']);
  equal(await metric(router, `turnout_worker_not_serving{worker="${first!.url}",reason="draining"}`), 1);
  deepEqual(new Set(await whoGets([ask, ask, ask, ask])), new Set([1]));
  equal((await steer(router.url, path, { state: 'off' })).status, 200);
  deepEqual(new Set(await whoGets([ask, ask, ask, ask])), new Set([0, 1]));
  const wrong = await steer(router.url, path, { state: 'maybe' });
  equal(wrong.status, 400);
  match(wrong.text, /state/);
});

test('the requests at a drained worker finish', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  const client = await connectClient(t, router.url);
  client.write(ask);
  const asked = await engine.next();
  const [worker] = router.fleet.workers;
  await steer(router.url, `/workers/${worker!.id}/drain`, { state: 'on' });
  await asked.payload();
  asked.answer('{"done":true}');
  equal((await client.answer('POST')).text, '{"done":true}');
  equal(router.fleet.load(worker!), 0);
  equal(router.fleet.strandedInFlight, 0);
  deepEqual(router.fleet.workers, [worker], 'it stays registered');
});

test('a quarantined worker gets requests again once it has passed its checks', async (t) => {
  const { log, lines } = recordedLog();
  const options = { disableHealthCheck: false, healthCheckIntervalSecs: 60, healthSuccessThreshold: 2 };
  const { router, engines, whoGets } = await startFleetScene(t, 2, { ...options, policy: 'round_robin' }, { log });
  await until('both are proven', () => router.fleet.workers.every(({ isProven }) => isProven));
  const [first] = router.fleet.workers;
  const well = engines[0]!.control;
  engines[0]!.control = () => answer(503, 'sick');
  equal((await steer(router.url, `/workers/${first!.id}/quarantine`, {})).status, 200);
  deepEqual(first!.reasonNames(), ['unhealthy']);
  deepEqual(new Set(await whoGets([ask, ask, ask])), new Set([1]));
  engines[0]!.control = well;
  await until('it has passed one check', () => first!.problem === '1 of 2 good checks (--health-success-threshold)');
  await until('it is proven healthy', () => router.fleet.eligible.length === 2);
  const warned = lines.flatMap(({ level, msg, worker }) => (level === 40 ? [[msg, worker]] : []));
  deepEqual(warned, [['worker quarantined by request', first!.url]]);
});

test('without health checks a quarantine would have no end: it is refused', async (t) => {
  const { router } = await startFleetScene(t, 1);
  const { status, text } = await steer(router.url, `/workers/${router.fleet.workers[0]!.id}/quarantine`, {});
  equal(status, 409);
  match(text, /drain it instead/);
});
