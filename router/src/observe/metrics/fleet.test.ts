import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { Fleet } from '../../fleet/fleet.ts';
import type { Worker } from '../../fleet/worker.ts';
import { fleetMetrics } from './fleet.ts';
import type { MetricSources } from './spec.ts';

const options = { pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null };

const counts = (fleet: Fleet): Record<string, number> => {
  const { read } = fleetMetrics.find(({ name }) => name === 'turnout_workers')!;
  const samples = read({ fleet } as MetricSources);
  return Object.fromEntries(samples.map(({ labels, value }) => [`${labels['role']} ${labels['eligible']}`, value]));
};

test('workers are counted by role, so that a fleet of pairs shows that one half is missing', () => {
  const pairs = new Fleet({ ...options, servesPairs: true });
  pairs.add('http://p:1', { role: 'prefill' });
  const none = { 'prefill true': 1, 'prefill false': 0, 'decode true': 0, 'decode false': 0 };
  deepEqual(counts(pairs), none);
  const decode = pairs.add('http://d:1', { role: 'decode' }) as Worker;
  pairs.setReason(decode, 'breaker', true);
  deepEqual(counts(pairs), { ...none, 'decode false': 1 });
  const regular = new Fleet(options);
  deepEqual(counts(regular), { 'regular true': 0, 'regular false': 0 });
  // A worker whose role no request needs: nothing is wrong without one that gets requests.
  regular.add('http://p:1', { role: 'prefill' });
  deepEqual(counts(regular), { 'regular true': 0, 'regular false': 0, 'prefill false': 1 });
});
