import { deepEqual, equal, match, ok } from 'node:assert/strict';
import dns from 'node:dns';
import { type TestContext, test } from 'node:test';
import { pino } from 'pino';
import { request, send } from '../harness/client.ts';
import { type ControlAnswer, answer, deadUrl, startEngine } from '../harness/engine.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { HELLO, type RouterOptions, startTestRouter } from '../harness/router.ts';
import type { Worker } from '../../src/fleet/worker.ts';
import { until } from '../harness/within.ts';

const FAST: RouterOptions = {
  disableHealthCheck: false,
  healthCheckIntervalSecs: 0.02,
  healthCheckTimeoutSecs: 60,
  healthFailureThreshold: 3,
  healthSuccessThreshold: 2,
};

const sick = answer(503, 'sick');

/** Counts the health checks and answers them as `state` says. */
async function patient(t: TestContext, options: { port?: number; more?: ControlAnswer } = {}) {
  const state = { isWell: true, checks: 0 };
  const control: ControlAnswer = (path) => {
    if (path !== '/health') return options.more?.(path) ?? answer(404, '');
    state.checks++;
    return state.isWell ? answer(200, '') : sick;
  };
  const engine = await startEngine(t, { control, port: options.port ?? 0 });
  engine.onRequest = (asked) => asked.answer('"ok"');
  return { engine, state };
}

test('quarantine comes after just N failed checks in a row, readmission after M good ones', async (t) => {
  const { engine, state } = await patient(t);
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
  const [worker] = router.fleet.workers;
  await until('it is known', () => worker!.isHealthy && worker!.engine !== null);
  const events: [boolean, number][] = [];
  let from = 0;
  router.fleet.onEvent((_event, { isHealthy }) => events.push([isHealthy, state.checks - from]));
  from = state.checks;
  state.isWell = false;
  await until('it is in quarantine', () => !worker!.isHealthy);
  equal((await send(t, router.url, HELLO)).status, 503);
  ok(events[0]![1] >= 3 && events[0]![1] <= 4, `in quarantine after ${events[0]![1]} checks`);
  from = state.checks;
  state.isWell = true;
  await until('it is back', () => worker!.isHealthy);
  deepEqual(events.at(-1), [true, 2]);
  equal((await send(t, router.url, HELLO)).status, 200);
});

test('whatever an engine answers to a check, the next check follows', async (t) => {
  const { engine, state } = await patient(t);
  const well = engine.control;
  const router = await startTestRouter(t, { ...FAST, healthFailureThreshold: 1, workerUrls: [engine.url] });
  const [worker] = router.fleet.workers;
  const answers: [bytes: string, problem: RegExp][] = [
    [answer(101, '', ['connection: upgrade', 'upgrade: websocket']), /answered 101/],
    ['HTTP/1.1 101 Switching\r\n\r\n', /answered 101/],
    ['HTTP/1.1 103 Early Hints\r\n\r\n', /ECONNRESET|hang up/],
    [`HTTP/1.1 100 Continue\r\n\r\n${sick}`, /answered 503/],
    ['HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort', /closed before the end/],
    ['HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n', /HPE_/],
    [answer(304, ''), /answered 304/],
    ['HTTP/1.1 204 No Content\r\n\r\nstray', /HPE_/],
    ['', /ECONNRESET|hang up/],
  ];
  for (const [bytes, problem] of answers) {
    await until('it is well', () => worker!.isHealthy && worker!.engine !== null);
    engine.control = (path) => (path === '/health' ? bytes : answer(404, ''));
    await until(`it is not after ${JSON.stringify(bytes)}`, () => problem.test(worker!.problem ?? ''));
    const { checks } = state;
    engine.control = well;
    await until('it is checked again', () => state.checks > checks);
  }
});

for (const resolver of ['refuses', 'does not answer'] as const) {
  test(`a host name that the resolver ${resolver} is said to be unresolvable, not hung`, async (t) => {
    const { lookup } = dns;
    t.mock.method(dns, 'lookup', ((...args: Parameters<typeof lookup>) => {
      if (args[0] !== 'engine.invalid') return lookup(...args);
      const error = Object.assign(new Error('no such name'), { code: 'ENOTFOUND', syscall: 'getaddrinfo' });
      if (resolver === 'refuses') process.nextTick(args.at(-1) as never, error);
    }) as never);
    const { log, of } = recordedLog();
    const options = { ...FAST, healthCheckTimeoutSecs: 0.05, workerUrls: ['http://engine.invalid:8000'] };
    const router = await startTestRouter(t, options, { log });
    const [worker] = router.fleet.workers;
    await until('it is out', () => worker!.reasons !== 0);
    // As many more checks as prove a hang.
    let times = 0;
    let lastMs = worker!.checkedAtMs;
    await until('it was checked again', () => {
      if (worker!.checkedAtMs !== lastMs) times++;
      lastMs = worker!.checkedAtMs;
      return times >= 3;
    });
    deepEqual(worker!.reasonNames(), ['unhealthy']);
    const why = resolver === 'refuses' ? 'ENOTFOUND' : 'no answer within 50 ms';
    equal(worker!.problem, `its host name cannot be resolved (${why})`);
    equal(of('worker not up yet')[0]!['detail'], worker!.problem);
    equal(of('worker hung').length, 0);
    match((await send(t, router.url, HELLO)).text, /1 unhealthy \(its host name cannot be resolved/);
  });
}

test('a worker that is the router itself gets no requests', async (t) => {
  const { engine } = await patient(t);
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
  const own = router.fleet.add(router.url.replace('127.0.0.1', 'localhost'), { isOperators: true }) as Worker;
  await until('it is found out', () => own.problem !== null);
  match(own.problem!, /508: the worker is this router itself/);
  ok(!router.fleet.isEligible(own));
  for (let i = 0; i < 4; i++) equal((await send(t, router.url, HELLO)).text, '"ok"');
});

test('failures that are not in a row do not add up', async (t) => {
  const { engine, state } = await patient(t);
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
  const [worker] = router.fleet.workers;
  await until('it is known', () => worker!.engine !== null);
  let count = 0;
  engine.control = (path) => {
    if (path !== '/health') return answer(404, '');
    state.checks++;
    return ++count % 3 === 0 ? answer(200, '') : sick;
  };
  let hasLeft = false;
  router.fleet.onEvent((_e, { isHealthy }) => (hasLeft ||= !isHealthy));
  await until('twelve more checks are done', () => count >= 12);
  equal(hasLeft, false);
});

test('a health path that hangs counts as a failure, at its timer', async (t) => {
  const { engine } = await patient(t);
  const router = await startTestRouter(t, { ...FAST, healthCheckTimeoutSecs: 0.1, workerUrls: [engine.url] });
  const [worker] = router.fleet.workers;
  await until('it is known', () => worker!.engine !== null);
  engine.control = () => null;
  await until('it is in quarantine', () => !worker!.isHealthy);
});

test('a worker that was never well gets no benefit of the doubt: one failure is enough', async (t) => {
  const { engine, state } = await patient(t);
  state.isWell = false;
  const router = await startTestRouter(t, { ...FAST, healthFailureThreshold: 50, workerUrls: [engine.url] });
  await until('it is in quarantine', () => router.fleet.eligible.length === 0);
  ok(state.checks <= 2);
});

test('a worker that is down at the start serves once it is up', async (t) => {
  const url = await deadUrl();
  const router = await startTestRouter(t, { ...FAST, workerUrls: [url] });
  await until('it is in quarantine', () => router.fleet.eligible.length === 0);
  await patient(t, { port: Number(new URL(url).port) });
  await until('it serves', () => router.fleet.eligible.length === 1);
  equal((await send(t, router.url, HELLO)).status, 200);
});

test('a request that finds its worker dead has it looked at at once, and the others serve', async (t) => {
  const dying = await patient(t);
  const well = await patient(t);
  const router = await startTestRouter(t, {
    ...FAST,
    healthCheckIntervalSecs: 3_600,
    healthFailureThreshold: 1,
    policy: 'round_robin',
    workerUrls: [dying.engine.url, well.engine.url],
  });
  await until('both are known', () => router.fleet.workers.every(({ engine }) => engine !== null));
  dying.engine.kill();
  for (let i = 0; i < 4; i++) equal((await send(t, router.url, HELLO)).status, 200);
  await until('it is in quarantine', () => router.fleet.eligible.length === 1);
});

test('a sick engine\u2019s own 500s pass and do not take it out of routing by themselves', async (t) => {
  const { engine } = await patient(t);
  engine.onRequest = ({ connection }) => connection.write(answer(500, 'mine'));
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
  for (let i = 0; i < 3; i++) equal((await send(t, router.url, HELLO)).text, 'mine');
  equal(router.fleet.eligible.length, 1);
});

/** An SGLang engine; `loads`: what its /v1/loads says. */
const asSglang =
  (loads: () => ControlAnswer extends (path: string) => infer Said ? Said : never): ControlAnswer =>
  (path) => {
    if (path === '/model_info') return answer(200, '{"model_path":"m","weight_version":"1"}');
    if (path === '/ready') return answer(200, '');
    return path.startsWith('/v1/loads') ? loads() : answer(404, '');
  };

const loadsWith = (paused: number): string =>
  answer(200, `{"loads":[{"dp_rank":0,"num_running_reqs":2,"num_used_tokens":9,"queues":{"paused":${paused}}}]}`);

async function checksGoOn(state: { checks: number }, count = 5): Promise<void> {
  const from = state.checks;
  await until(`${count} more checks are done`, () => state.checks > from + count);
}

test('an SGLang engine that reports that it is paused stays in without a limit while its health path fails', async (t) => {
  let paused = 2;
  const { engine, state } = await patient(t, { more: asSglang(() => loadsWith(paused)) });
  const router = await startTestRouter(t, { ...FAST, maxPauseSecs: 0, workerUrls: [engine.url] });
  const [worker] = router.fleet.workers;
  await until('it is known', () => worker!.engine === 'sglang');
  state.isWell = false;
  await checksGoOn(state);
  equal(worker!.isHealthy, true);
  paused = 0;
  await until('it is in quarantine', () => !worker!.isHealthy);
});

test('an SGLang engine whose scheduler is dead goes out, though its HTTP server says that it is ready', async (t) => {
  const { engine, state } = await patient(t, { more: asSglang(() => null) });
  const router = await startTestRouter(t, { ...FAST, healthCheckTimeoutSecs: 0.1, workerUrls: [engine.url] });
  const [worker] = router.fleet.workers;
  await until('it is known', () => worker!.engine === 'sglang');
  state.isWell = false;
  await until('it is in quarantine', () => !worker!.isHealthy);
});

for (const [how, target, fields] of [
  ['sent to all', '/pause_generation', []],
  ['sent to one', '/pause_generation', ['x-turnout-worker: *']],
] as const) {
  test(`a pause that passed through the router, ${how}, excuses failing checks for --max-pause-secs`, async (t) => {
    const { engine, state } = await patient(t, { more: asSglang(() => answer(404, '')) });
    const router = await startTestRouter(t, { ...FAST, maxPauseSecs: 1, workerUrls: [engine.url] });
    const [worker] = router.fleet.workers;
    await until('it is known', () => worker!.engine === 'sglang');
    const named = fields.map((field) => field.replace('*', worker!.id));
    let leftMs = 0;
    router.fleet.onEvent((_event, { isHealthy }) => {
      if (!isHealthy) leftMs ||= performance.now();
    });
    const pausedMs = performance.now();
    equal((await send(t, router.url, request('POST', target, '{}', named))).status, 200);
    state.isWell = false;
    await until('it is in quarantine', () => !worker!.isHealthy);
    ok(leftMs - pausedMs >= 1_000, `it left after ${leftMs - pausedMs} ms`);
  });
}

test('a control that starts the engine again ends the excuse', async (t) => {
  const { engine, state } = await patient(t, { more: asSglang(() => answer(404, '')) });
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
  const [worker] = router.fleet.workers;
  await until('it is known', () => worker!.engine === 'sglang');
  for (const path of ['/pause_generation', '/release_memory_occupation', '/continue_generation'])
    equal((await send(t, router.url, request('POST', path, '{}'))).status, 200);
  state.isWell = false;
  await checksGoOn(state);
  equal(worker!.isHealthy, true, 'its memory is released still');
  equal((await send(t, router.url, request('POST', '/resume_memory_occupation', '{}'))).status, 200);
  await until('it is in quarantine', () => !worker!.isHealthy);
});

for (const [how, resume] of [
  ['the body', (tag: string) => request('POST', '/resume_memory_occupation', `{"tags":["${tag}"]}`)],
  ['the query', (tag: string) => request('POST', `/wake_up?tags=${tag}`)],
] as const) {
  test(`an engine whose weights are resumed is excused until its KV cache is: ${how} names the memory`, async (t) => {
    const { engine, state } = await patient(t, { more: asSglang(() => answer(404, '')) });
    const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
    const [worker] = router.fleet.workers;
    await until('it is known', () => worker!.engine === 'sglang');
    for (const message of [request('POST', '/release_memory_occupation', '{}'), resume('weights')])
      equal((await send(t, router.url, message)).status, 200);
    state.isWell = false;
    await checksGoOn(state);
    equal(worker!.isHealthy, true, 'its KV cache is released still');
    equal((await send(t, router.url, resume('kv_cache'))).status, 200);
    await until('it is in quarantine', () => !worker!.isHealthy);
  });
}

test('a pause ends with the last worker of an engine: the next engine at its URL is not taken to be paused', async (t) => {
  const { engine, state } = await patient(t, { more: asSglang(() => answer(404, '')) });
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
  await until('it is known', () => router.fleet.workers[0]!.engine === 'sglang');
  equal((await send(t, router.url, request('POST', '/pause_generation', '{}'))).status, 200);
  router.fleet.remove(router.fleet.workers[0]!);
  state.isWell = false;
  const worker = router.fleet.add(engine.url) as Worker;
  await until('it is out', () => worker.reasonNames().includes('unhealthy'));
});

test('an engine that is in quarantine does not come back because it is paused', async (t) => {
  let paused = 0;
  const { engine, state } = await patient(t, { more: asSglang(() => loadsWith(paused)) });
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
  const [worker] = router.fleet.workers;
  await until('it is known', () => worker!.engine === 'sglang');
  state.isWell = false;
  await until('it is in quarantine', () => !worker!.isHealthy);
  paused = 1;
  await checksGoOn(state);
  equal(worker!.isHealthy, false);
});

test('--disable-health-check: no engine is asked', async (t) => {
  const { engine, state } = await patient(t);
  const router = await startTestRouter(t, { ...FAST, disableHealthCheck: true, workerUrls: [engine.url] });
  for (let i = 0; i < 3; i++) equal((await send(t, router.url, HELLO)).status, 200);
  equal(state.checks, 0);
  equal((await send(t, router.url, request('GET', '/readiness'))).status, 200);
});

test('a removed worker is asked no more', async (t) => {
  const { engine, state } = await patient(t);
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url] });
  await until('it is known', () => state.checks > 2);
  router.fleet.remove(router.fleet.workers[0]!);
  await until('nothing is open', () => engine.openSockets === 0);
  const after = state.checks;
  await new Promise((resolve) => {
    setTimeout(resolve, 150);
  });
  equal(state.checks, after);
});

test('a worker shows its last check, and the refusal says what was wrong with it', async (t) => {
  const { engine, state } = await patient(t);
  const dead = await deadUrl();
  const lines: string[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(line) });
  const router = await startTestRouter(t, { ...FAST, workerUrls: [engine.url, dead] }, { log });
  const [sickly, absent] = router.fleet.workers;
  await until('both are checked', () => sickly!.engine !== null && absent!.checkedAtMs !== null);
  const lastCheck = async (worker: typeof sickly) => {
    const { text } = await send(t, router.url, request('GET', `/workers/${worker!.id}`));
    return (JSON.parse(text) as { last_check: { at: string; error: string | null } }).last_check;
  };
  equal((await lastCheck(sickly)).error, null);
  const { at, error } = await lastCheck(absent);
  equal(error, 'ECONNREFUSED');
  ok(Math.abs(Date.parse(at) - Date.now()) < 60_000);
  state.isWell = false;
  await until('it is in quarantine', () => !sickly!.isHealthy);
  const refused = await send(t, router.url, request('POST', '/generate', '{}'));
  equal(refused.status, 503);
  match(refused.text, /of 2 registered, 2 unhealthy \(\/health answered 503; ECONNREFUSED\)/);
  const levelOf = (part: string): number | undefined =>
    lines
      .map((line) => JSON.parse(line) as { level: number; msg: string; worker: string })
      .find(({ msg, worker }) => msg.includes(part) && worker === absent!.url)?.level;
  equal(levelOf('worker not up yet'), 30, 'a worker that was never up is no failure');
  equal(levelOf('Marking DEAD'), undefined);
});
