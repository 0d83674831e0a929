import { deepEqual, equal, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { fleetOf } from '../../test/harness/policy.ts';
import { until } from '../../test/harness/within.ts';
import { type Asker, NoAnswer } from '../engines/ask.ts';
import { HealthWatch, type HealthWatchParts } from './health-watch.ts';
import { Pauses } from './pauses.ts';

function startWatch(t: TestContext, asker: Asker, more: object = {}, intervalMs = 600_000) {
  const { fleet, workers } = fleetOf('http://a:1');
  const worker = workers[0]!;
  t.mock.method(worker, 'asker', () => asker);
  const options = {
    path: '/health',
    intervalMs,
    successThreshold: 1,
    failureThreshold: 3,
    timeoutMs: 1_000,
    isEnabled: true,
    startupIntervalMs: 600_000,
  };
  const pauses = new Pauses(() => 600_000);
  const parts = { fleet, options, random: () => 0, pauses, onEvent: () => {}, ...more } as unknown as HealthWatchParts;
  const watch = new HealthWatch(parts);
  t.after(() => watch.end());
  watch.add(worker);
  watch.checkIn(0);
  return { watch, worker, pauses };
}

test('a check that began while its engine was paused and fails after it was resumed takes no worker out', async (t) => {
  const checks: ((error: Error) => void)[] = [];
  const { watch, worker } = startWatch(t, () => new Promise((_, reject) => checks.push(reject)));
  await until('it is checked', () => checks.length === 1);
  watch.resumed();
  checks[0]!(new NoAnswer());
  await until('it is checked again', () => checks.length === 2);
  ok(!worker.reasonNames().includes('unhealthy'), String(worker.reasonNames()));
});

test('a fault in a check is reported, and the next check comes', async (t) => {
  let looks = 0;
  const faults: string[] = [];
  process.setUncaughtExceptionCaptureCallback((error) => faults.push(error.message));
  t.after(() => process.setUncaughtExceptionCaptureCallback(null));
  const versions = {
    learned: () => {},
    areServed: () => {
      looks++;
      return Promise.reject(new Error('a shape that nothing expects'));
    },
  };
  const breakers = { passedCheck: () => {} };
  startWatch(
    t,
    () => Promise.resolve({ status: 200, text: '{"version":"0.33.0"}' }),
    {
      breakers,
      versions,
      models: { isRead: () => true },
    },
    2,
  );
  await until('it is checked again', () => looks >= 3);
  deepEqual([...new Set(faults)], ['a shape that nothing expects']);
});

test('an engine that ends before it has said what it is has failed its check, and is asked again', async (t) => {
  const none = (): void => {};
  let asked = 0;
  const { worker } = startWatch(
    t,
    (path) => {
      if (path === '/health') return Promise.resolve({ status: 200, text: '' });
      if (path !== '/version') return Promise.resolve({ status: 404, text: '' });
      if (++asked > 2) return Promise.resolve({ status: 200, text: '{"version":"0.33.0"}' });
      equal(worker.engine, null);
      return Promise.reject(Object.assign(new Error(), { code: 'ECONNRESET' }));
    },
    {
      breakers: { passedCheck: none, readmitted: none },
      models: { isRead: () => true },
      versions: { learned: none, areServed: () => Promise.resolve(true) },
    },
    2,
  );
  await until('it is out', () => worker.reasonNames().includes('unhealthy'));
  equal(worker.problem, '/version: ECONNRESET');
  await until('it serves', () => worker.reasonNames().length === 0);
  deepEqual([worker.engine, worker.problem], ['vllm', null]);
});

test('an engine that was restarted is of its kind until it says what it is, and of another one from then on', async (t) => {
  const none = (): void => {};
  let answers: 'vllm' | 'nothing' | 'sglang' = 'vllm';
  let hasRestarted = false;
  const { worker } = startWatch(
    t,
    (path) => {
      if (path === '/health') return Promise.resolve({ status: 200, text: '' });
      if (path === '/metrics') {
        const start = `process_start_time_seconds ${answers === 'vllm' ? 1 : 2}\n`;
        return Promise.resolve({ status: 200, text: start });
      }
      if (answers === 'nothing') return Promise.reject(Object.assign(new Error(), { code: 'ECONNRESET' }));
      if (answers === 'vllm' && path === '/version')
        return Promise.resolve({ status: 200, text: '{"version":"0.33.0"}' });
      if (answers === 'sglang' && path === '/model_info')
        return Promise.resolve({ status: 200, text: '{"model_path":"m"}' });
      return Promise.resolve({ status: 404, text: '' });
    },
    {
      onEvent: (event: string) => void (hasRestarted ||= event === 'restarted'),
      breakers: { passedCheck: none, readmitted: none },
      models: { isRead: () => true },
      versions: { learned: none, areServed: () => Promise.resolve(true) },
    },
    2,
  );
  await until('it serves', () => worker.engine === 'vllm' && worker.reasonNames().length === 0);
  answers = 'nothing';
  await until('it was restarted, and is out', () => hasRestarted && worker.reasonNames().includes('unhealthy'));
  equal(worker.engine, 'vllm');
  answers = 'sglang';
  await until('it is another one', () => worker.engine === 'sglang');
});

test('an engine whose proxy never answers what tells kinds apart serves at last, and one that ends now and then does not', async (t) => {
  const none = (): void => {};
  const more = {
    breakers: { passedCheck: none, readmitted: none },
    models: { isRead: () => true },
    versions: { learned: none, areServed: () => Promise.resolve(true) },
  };
  const behindProxy =
    (isHealthy: () => boolean): Asker =>
    (path) => {
      if (path === '/v1/models') return Promise.resolve({ status: 200, text: '{"data":[{"id":"m"}]}' });
      return Promise.resolve({ status: path === '/health' && isHealthy() ? 200 : 503, text: '' });
    };
  let [asked, askedEnding] = [0, 0];
  const ending = startWatch(
    t,
    behindProxy(() => ++askedEnding % 4 !== 0),
    more,
    2,
  );
  const { worker } = startWatch(
    t,
    behindProxy(() => ++asked > 0),
    more,
    2,
  );
  await until('it serves', () => worker.engine !== null && worker.reasonNames().length === 0);
  deepEqual([worker.engine, worker.problem, asked > 3], ['openai', null, true]);
  await until('the other is checked', () => askedEnding > 20);
  equal(ending.worker.engine, null);
});

test('a pause is no excuse for an engine that never passed a check', async (t) => {
  const { worker, pauses } = startWatch(t, () => Promise.resolve({ status: 503, text: '' }));
  pauses.begin('http://a:1', '/pause_generation')(true);
  await until('it is out', () => worker.reasonNames().includes('unhealthy'));
});

test('an engine is another process if it reports another start, and several behind one URL are not restarted again and again', async (t) => {
  let starts = ['1700000100.5'];
  let asked = 0;
  let isRefused = false;
  const asker: Asker = (path) => {
    if (isRefused) return Promise.reject(Object.assign(new Error(), { code: 'ECONNREFUSED' }));
    const metrics = `process_start_time_seconds ${starts[asked % starts.length]}\n`;
    if (path === '/metrics') asked++;
    const text = path === '/metrics' ? metrics : '{"version":"0.33.0"}';
    return Promise.resolve({ status: 200, text });
  };
  const restarted: string[] = [];
  const restarts = (): number => restarted.length;
  const none = (): void => {};
  const { worker } = startWatch(
    t,
    asker,
    {
      onEvent: (event: string) => void (event === 'restarted' && restarted.push(event)),
      breakers: { passedCheck: none, readmitted: none },
      models: { isRead: () => true },
      versions: { learned: none, areServed: () => Promise.resolve(true) },
    },
    2,
  );
  const checked = async (): Promise<void> => {
    const enough = asked + 40;
    await until('it is checked', () => asked > enough);
  };
  await checked();
  equal(restarts(), 0);
  starts = ['1700000200'];
  await checked();
  equal(restarts(), 1);
  // A proxy answers from several processes.
  starts = ['1700000200', '1700000150', '1.7000002005e+09'];
  await checked();
  equal(restarts(), 3);
  const before = restarts();
  await checked();
  equal(restarts(), before);
  // One that refused connections may have a clock that is behind.
  isRefused = true;
  await until('it is out', () => worker.reasonNames().includes('unhealthy'));
  starts = ['1600000000'];
  isRefused = false;
  await checked();
  equal(restarts(), before + 1);
  starts = ['1600000001'];
  await checked();
  equal(restarts(), before + 2);
});
