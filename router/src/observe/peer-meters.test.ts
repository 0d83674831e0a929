import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf } from '../../test/harness/policy.ts';
import { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import { MAX_KEYS } from './meters.ts';
import { peerMetrics } from './metrics/peers.ts';
import type { MetricSources } from './metrics/spec.ts';
import { PeerMeters } from './peer-meters.ts';

test('the counters of workers and models that come and go have a limit', () => {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null, servesPairs: true });
  let n = 0;
  const peers = new PeerMeters(
    () => 'random',
    () => `m${n}`,
  );
  for (n = 0; n < MAX_KEYS + 10; n++) {
    const worker = fleet.add(`http://w${n}:1`, { role: 'decode' }) as Worker;
    const leg = { worker, role: 'decode' as const };
    const x = exchangeOf();
    Object.assign(x, { isGeneration: true, placement: { legs: [leg, leg] }, status: 200, outcome: 'complete' });
    Object.assign(x, { endMs: x.startMs, answeredBy: worker });
    peers.attemptFailed(x, worker, 'reset', '', null);
    peers.finished(x);
    fleet.remove(worker);
  }
  const [route] = peers.routes.values();
  for (const counts of [
    peers.decisions,
    peers.selections,
    peers.halves,
    peers.failedHalves,
    peers.inRow,
    route!.answered,
  ])
    equal(counts.size, MAX_KEYS);
});

test('names of models and policies may have blanks', () => {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null });
  const worker = fleet.add('http://w:1') as Worker;
  const peers = new PeerMeters(
    () => './my policy.js',
    () => 'my model',
  );
  const x = exchangeOf();
  Object.assign(x, { isGeneration: true, path: '/v1/completions', status: 200, outcome: 'complete' });
  Object.assign(x, { endMs: x.startMs, answeredBy: worker });
  peers.finished(x);
  const sources = { peers } as unknown as MetricSources;
  const labelsOf = (peer: keyof typeof peerMetrics, label: string) =>
    peerMetrics[peer].flatMap(({ name, read, labels = [] }) =>
      labels.includes(label) && !name.includes('worker_') ? read(sources).map((sample) => sample.labels[label]) : [],
    );
  deepEqual(new Set(labelsOf('sglang', 'model')), new Set(['my model']));
  deepEqual(new Set(labelsOf('sglang', 'streaming')), new Set(['false']));
  deepEqual(new Set(labelsOf('vllm', 'policy')), new Set(['./my policy.js']));
});

test('a closed idle connection and an abort by request are no errors of an engine', () => {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1, idleTimeoutMs: 1 }, tls: null, servesPairs: true });
  const worker = fleet.add('http://w:1', { role: 'decode' }) as Worker;
  const peers = new PeerMeters(
    () => 'random',
    () => 'm',
  );
  peers.attemptFailed(exchangeOf(), worker, 'stale', '', 0);
  equal(peers.failedHalves.size, 0);
  peers.attemptFailed(exchangeOf(), worker, 'aborted', '', 0);
  deepEqual([...peers.upstream], [['200\n', 1]]);
});
