import { ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { fleetOf } from '../../test/harness/policy.ts';
import { until } from '../../test/harness/within.ts';
import { type Asker, NoAnswer } from '../engines/ask.ts';
import { HealthWatch, type HealthWatchParts } from './health-watch.ts';
import { Pauses } from './pauses.ts';

function startWatch(t: TestContext, asker: Asker) {
  const { fleet, workers } = fleetOf('http://a:1');
  const worker = workers[0]!;
  t.mock.method(worker, 'asker', () => asker);
  const options = {
    path: '/health',
    intervalMs: 600_000,
    timeoutMs: 1_000,
    isEnabled: true,
    startupIntervalMs: 600_000,
  };
  const pauses = new Pauses(() => 600_000);
  const parts = { fleet, options, random: () => 0, pauses, onEvent: () => {} } as unknown as HealthWatchParts;
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

test('a pause is no excuse for an engine that never passed a check', async (t) => {
  const { worker, pauses } = startWatch(t, () => Promise.resolve({ status: 503, text: '' }));
  pauses.begin('http://a:1', '/pause_generation')(true);
  await until('it is out', () => worker.reasonNames().includes('unhealthy'));
});
