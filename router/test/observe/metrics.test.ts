import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { Registry } from 'prom-client';
import type { PolicyName } from '../../src/config/options/policy-names.ts';
import { version } from '../../src/config/version.ts';
import type { Router } from '../../src/router.ts';
import { request, send } from '../harness/client.ts';
import { answer, startEngine } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { chunk } from '../harness/message.ts';
import { startScene, startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const isLinux = process.platform === 'linux';

const metricsOf = async (t: TestContext, url: string): Promise<(name: string) => number> => {
  const { text } = await send(t, url, request('GET', '/metrics'));
  return (name) => {
    const line = text.split('\n').find((each) => each.startsWith(`${name} `));
    return line === undefined ? Number.NaN : Number(line.slice(name.length + 1));
  };
};

test('the build and the process: version, CPU, memory, start, open files', async (t) => {
  const router = await startTestRouter(t);
  const value = await metricsOf(t, router.url);
  equal(value(`turnout_build_info{version="${version}",node="${process.versions.node}"}`), 1);
  ok(value('process_cpu_seconds_total') > 0);
  ok(value('process_resident_memory_bytes') > 20e6);
  const startedMs = value('process_start_time_seconds') * 1000;
  ok(startedMs < Date.now() && startedMs > Date.now() - 3_600_000);
  if (!isLinux) return;
  const open = readdirSync('/proc/self/fd').length;
  ok(Math.abs(value('process_open_fds') - open) < 20, `${value('process_open_fds')} and ${open}`);
  ok(value('process_max_fds') >= open);
});

test('where no response reports cached tokens there is no sample of them, and no share', async (t) => {
  const counts = { prompt_tokens: 12, completion_tokens: 3 };
  const usages = [
    counts,
    { ...counts, prompt_tokens_details: null },
    { ...counts, prompt_tokens_details: { cached_tokens: 0 } },
  ];
  const engines = await Promise.all(
    usages.map((usage) =>
      startEngine(t, { onRequest: (asked) => asked.answer(JSON.stringify({ choices: [], usage })) }),
    ),
  );
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url), policy: 'round_robin' });
  for (let i = 0; i < 3; i++) await send(t, router.url, post('/v1/completions', { prompt: 'p' }));
  await untilIdle(router);
  const { text } = await send(t, router.url, request('GET', '/metrics'));
  for (const [i, { url }] of engines.entries()) {
    ok(text.includes(`turnout_prompt_tokens_total{worker="${url}"} 12`));
    equal(text.includes(`turnout_cached_tokens_total{worker="${url}"} 0`), i === 2);
    equal(text.includes(`turnout_cacheable_prompt_tokens_total{worker="${url}"} 12`), i === 2);
    equal(text.split(`cached_tokens_total{worker="${url}"}`).length, i === 2 ? 2 : 1);
  }
});

test('tokens of prompts, cached ones and answers, by worker and in the line of the request', async (t) => {
  const usage = '"usage":{"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}';
  const engine = await startEngine(t, {
    onRequest: (asked) => {
      if (asked.target.endsWith('/completions')) asked.answer(`{"choices":[],${usage}}`);
      else asked.answer(`{"elsewhere":{${usage}}}`);
    },
  });
  const { log, of } = recordedLog('info');
  const workerUrls = [engine.url];
  const router = await startTestRouter(t, { workerUrls, policy: 'least_inflight', accessLog: true }, { log });
  for (let i = 0; i < 2; i++) {
    equal((await send(t, router.url, post('/v1/completions', { prompt: 'p' }))).status, 200);
  }
  // No generation: what its answer says is not counted.
  await send(t, router.url, post('/other', {}));
  await untilIdle(router);
  const value = await metricsOf(t, router.url);
  const label = `{worker="${engine.url}"}`;
  equal(value(`turnout_prompt_tokens_total${label}`), 24);
  equal(value(`turnout_cached_tokens_total${label}`), 16);
  equal(value(`turnout_output_tokens_total${label}`), 6);
  const [line, , other] = of('exchange').map(({ promptTokens, cachedTokens, outputTokens }) =>
    JSON.stringify({ promptTokens, cachedTokens, outputTokens }),
  );
  equal(line, '{"promptTokens":12,"cachedTokens":8,"outputTokens":3}');
  equal(other, '{}');
});

test('a held request: how long and for what is in its line and in a histogram', async (t) => {
  const engine = await startEngine(t);
  const { log, of } = recordedLog('info');
  const options = { workerUrls: [engine.url, 'http://127.0.0.1:9'], workerMaxInflight: 1, accessLog: true };
  const router = await startTestRouter(t, options, { log });
  const [, away] = router.fleet.workers;
  router.fleet.begin(away!);
  const first = send(t, router.url, post('/v1/completions', { prompt: 'p' }));
  const asked = await engine.next();
  const second = send(t, router.url, post('/v1/completions', { prompt: 'q' }));
  await until('it is held', () => [...router.pipeline.inFlight].some(({ waiting }) => waiting?.phase === 'held'));
  asked.answer('{}');
  await first;
  (await engine.next()).answer('{}');
  await second;
  router.fleet.finish(away!);
  await untilIdle(router);
  const value = await metricsOf(t, router.url);
  equal(value('turnout_held_seconds_count{reason="workers_full"}'), 1);
  const [, line] = of('exchange');
  equal(line!['heldFor'], 'workers_full');
  ok(Number(line!['heldMs']) > 0 && Number(line!['heldMs']) <= Number(line!['ms']));
  match(String(of('exchange')[0]!['heldMs']), /undefined/);
});

test('times of a stream: to its first token and between tokens, for all and by worker, and of the last minute in GET /workers', async (t) => {
  const scene = await startScene(t);
  const { router, engine, client } = scene;
  const asked = await scene.ask(post('/v1/completions', { prompt: 'p', stream: true }));
  // vLLM sends the head of a stream at once.
  asked.beginStream();
  await client.read('\r\n\r\n');
  const headMs = performance.now();
  await until('20 ms have passed', () => performance.now() - headMs > 20);
  asked.connection.write(chunk('data: {"choices":[]}\n\n'));
  await client.read('data: ');
  const firstMs = performance.now();
  await until('20 ms have passed', () => performance.now() - firstMs > 20);
  const usage = '{"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":5}}';
  asked.connection.write(`${chunk(`data: ${usage}\n\n`)}0\r\n\r\n`);
  await untilIdle(router);
  const value = await metricsOf(t, router.url);
  const label = `{worker="${engine.url}"}`;
  equal(value('turnout_time_to_first_token_seconds_count'), 1);
  equal(value('turnout_inter_token_gap_seconds_count'), 1);
  const gap = value(`turnout_worker_inter_token_gap_seconds_sum${label}`);
  ok(gap >= 0.005, `${gap}: 20 ms for 4 gaps`);
  const first = value(`turnout_worker_time_to_first_token_seconds_sum${label}`);
  ok(first >= 0.02 && first <= value('turnout_time_to_first_token_seconds_sum'), String(first));
  ok(value('turnout_time_to_first_byte_seconds_sum') <= value('turnout_time_to_first_token_seconds_sum') - 0.02);
  const whole = value(`turnout_worker_response_seconds_sum${label}`);
  ok(Math.abs(whole - first - 4 * gap) < 1e-6, `${whole} = ${first} + 4 * ${gap}`);
  equal(value('turnout_request_body_bytes_total'), JSON.stringify({ prompt: 'p', stream: true }).length);
  ok(value('turnout_response_body_bytes_total') > usage.length);
  const { text } = await send(t, router.url, request('GET', '/workers'));
  const { workers } = JSON.parse(text) as { workers: { last_minute: Record<string, number> }[] };
  const recent = workers[0]!.last_minute;
  ok(Math.abs(recent['inter_token_gap_secs']! - gap) < 1e-3 && recent['time_to_first_token_secs']! > 0);
});

test('a response that is no stream has no first token', async (t) => {
  const { router, engine, exchange } = await startScene(t);
  await exchange(post('/v1/completions', { prompt: 'p' }), answer(200, '{"choices":[]}'));
  await untilIdle(router);
  const value = await metricsOf(t, router.url);
  const label = `{worker="${engine.url}"}`;
  equal(value('turnout_time_to_first_token_seconds_count'), 0);
  equal(value(`turnout_worker_time_to_first_token_seconds_count${label}`), 0);
  equal(value(`turnout_worker_response_seconds_count${label}`), 1);
});

test('the changes of a circuit breaker are counted', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.connection.write(answer(500, '{}')) });
  const options = { workerUrls: [engine.url], cbFailureThreshold: 2, maxEjectedPercent: 100, disableRetries: true };
  const router = await startTestRouter(t, options);
  for (let i = 0; i < 2; i++) await send(t, router.url, post('/v1/completions', { prompt: 'p' }));
  await untilIdle(router);
  const value = await metricsOf(t, router.url);
  const name = 'turnout_worker_breaker_transitions_total';
  equal(value(`${name}{worker="${engine.url}",from="closed",to="open"}`), 1);
});

test('the changes that a user forces are counted, from closed on for a worker that was removed and added again', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, { workerUrls: [engine.url], disableHealthCheck: true });
  const force = async (state: string): Promise<void> => {
    const path = `/workers/${router.fleet.workers[0]!.id}/breaker`;
    equal((await send(t, router.url, request('POST', path, JSON.stringify({ state })))).status, 200);
  };
  const reset = ['open', 'auto', 'auto', 'open'];
  for (const state of reset) await force(state);
  router.fleet.remove(router.fleet.workers[0]!);
  router.fleet.add(engine.url);
  for (const state of reset) await force(state);
  const page = await (await fetch(router.metricsUrl)).text();
  const changes = page.matchAll(/^turnout_worker_breaker_transitions_total\{.*from="(\w+)",to="(\w+)"\} (\d+)$/gm);
  deepEqual(
    Array.from(changes, ([, from, to, count]) => `${from} ${to} ${count}`),
    ['closed open 4', 'open closed 2'],
  );
});

test('the size of the prefix index of a policy that has one', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('{}') });
  const sizes = async (router: Router, policy: string): Promise<[blocks: number, bytes: number]> => {
    const value = await metricsOf(t, router.url);
    return [
      value(`turnout_policy_index_blocks{policy="${policy}"}`),
      value(`turnout_policy_index_bytes{policy="${policy}"}`),
    ];
  };
  const ask = async (router: Router, text: string): Promise<void> => {
    const body = JSON.stringify({ prompt: text.repeat(800) });
    equal((await send(t, router.url, request('POST', '/v1/completions', body))).status, 200);
    await untilIdle(router);
  };
  for (const policy of ['cache_aware', 'rollout'] satisfies PolicyName[]) {
    const router = await startTestRouter(t, { workerUrls: [engine.url], policy, modelPolicy: [`other=${policy}`] });
    await ask(router, 'word ');
    const [blocks, bytes] = await sizes(router, policy);
    ok(blocks > 5 && blocks < 800, `${policy}: ${blocks}`);
    await ask(router, 'word ');
    // `rollout` also remembers each request that has no session.
    ok((await sizes(router, policy))[0] - blocks <= 1, 'the same prompt');
    await ask(router, 'else ');
    const [more, moreBytes] = await sizes(router, policy);
    ok(more >= 2 * blocks - 1, `${policy}: ${blocks}, ${more}`);
    equal(moreBytes - bytes, 40 * (more - blocks));
    await fetch(`${router.url}/flush_cache`, { method: 'POST' });
    deepEqual(await sizes(router, policy), [0, moreBytes]);
  }
  const without = await startTestRouter(t, { workerUrls: [engine.url], policy: 'round_robin' });
  ok(!(await (await fetch(`${without.url}/metrics`)).text()).includes('turnout_policy_index_blocks{'));
});

test('decisions of a policy by reason, and the cached tokens that it predicted next to those that engines report', async (t) => {
  const usage = '"usage":{"prompt_tokens":500,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":200}}';
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer(`{"choices":[],${usage}}`) });
  const prompt = 'word '.repeat(400);
  const ask = async (policy: string, fields: readonly string[]) => {
    const router = await startTestRouter(t, { workerUrls: [engine.url], policy });
    for (let i = 0; i < 3; i++) {
      const body = JSON.stringify({ prompt });
      equal((await send(t, router.url, request('POST', '/v1/completions', body, fields))).status, 200);
    }
    await untilIdle(router);
    return metricsOf(t, router.url);
  };
  const label = '{policy="cache_aware"}';
  const aware = await ask('cache_aware', []);
  equal(aware('turnout_policy_decisions_total{policy="cache_aware",reason="policy"}'), 3);
  equal(aware(`turnout_policy_prompt_tokens_total${label}`), 1500);
  equal(aware(`turnout_policy_reported_cached_tokens_total${label}`), 600);
  // Nothing of the first prompt, all whole blocks of the others: about 500 tokens of 4 bytes.
  const predicted = aware(`turnout_policy_predicted_cached_tokens_total${label}`);
  ok(predicted > 800 && predicted <= 1000, String(predicted));
  const missed = aware(`turnout_policy_missed_cached_tokens_total${label}`);
  ok(Math.abs(missed - (200 + predicted - 400)) < 1e-6, String(missed));
  const rollout = await ask('rollout', ['x-session-id: s']);
  equal(rollout('turnout_policy_decisions_total{policy="rollout",reason="new"}'), 1);
  equal(rollout('turnout_policy_decisions_total{policy="rollout",reason="home"}'), 2);
  ok(rollout('turnout_policy_predicted_cached_tokens_total{policy="rollout"}') > 0);
  const without = await ask('round_robin', []);
  equal(without('turnout_policy_prompt_tokens_total{policy="round_robin"}'), 0);
});

test('a stream that ends with its connection took the time to its end, not to the last tick of the coarse clock', async (t) => {
  const { router, engine, ask } = await startScene(t);
  const asked = await ask(post('/v1/completions', { prompt: 'p', stream: true }));
  const usage = '{"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":5}}';
  asked.connection.write(`HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ${usage}\n\n`);
  asked.connection.end();
  await untilIdle(router);
  const value = await metricsOf(t, router.url);
  ok(value('turnout_inter_token_gap_seconds_sum') >= 0, 'between tokens');
  ok(value(`turnout_worker_response_seconds_sum{worker="${engine.url}"}`) > 0, 'of the response');
});

test('a connection to the metrics port stays open for the next scrape, a minute later', async (t) => {
  const router = await startTestRouter(t, { prometheusPort: 0 });
  const { status, headers } = await fetch(`${router.metricsUrl}/metrics`);
  deepEqual([status, headers.get('keep-alive')], [200, 'timeout=75']);
});

test('a scrape waits for few turns of the event loop, which take long in a busy router', async (t) => {
  const router = await startTestRouter(t, { prometheusPort: 0 });
  // Before it reads metrics it waits for another thread, which counts the open files.
  const { mock } = t.mock.method(Registry.prototype, 'getSingleMetricAsString');
  let turns = 0;
  let isOver = false;
  const busy = (): void => {
    if (mock.callCount() > 0) turns++;
    const untilMs = performance.now() + 20;
    while (performance.now() < untilMs);
    if (!isOver) setImmediate(busy);
  };
  busy();
  const page = await (await fetch(`${router.metricsUrl}/metrics`)).text();
  isOver = true;
  const metrics = page.split('\n').filter((line) => line.startsWith('# TYPE ')).length;
  ok(metrics > 60 && turns < metrics / 2, `${turns} turns for ${metrics} metrics`);
});
