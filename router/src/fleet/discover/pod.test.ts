import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { readWorkerUrl } from '../worker-url.ts';
import { type Pod, type PodWorker, readPod } from './pod.ts';

const OPTIONS = { ports: [8000], bootstrapPortAnnotation: 'sglang.ai/bootstrap-port', roles: null };

const serving: Pod = {
  metadata: { name: 'engine-0', namespace: 'rl', uid: 'u', annotations: { 'sglang.ai/bootstrap-port': '8998' } },
  spec: { nodeName: 'gpu-1' },
  status: { phase: 'Running', podIP: '10.0.0.7', conditions: [{ type: 'Ready', status: 'True' }] },
};

test('a ready pod is a worker, with what people want to know of it', () => {
  deepEqual(readPod(serving, OPTIONS), {
    state: 'ready',
    workers: [
      {
        url: 'http://10.0.0.7:8000',
        role: 'regular',
        bootstrapPort: null,
        labels: { pod: 'engine-0', namespace: 'rl', node: 'gpu-1', bootstrap_port: '8998' },
      },
    ],
  });
});

test('every port is a worker, or only those that the pod names as active', () => {
  const urls = (active?: string): string[] => {
    const annotations = active === undefined ? {} : { 'inference.networking.k8s.io/active-ports': active };
    const pod = { ...serving, metadata: { ...serving.metadata, annotations } };
    const reading = readPod(pod, { ...OPTIONS, ports: [8000, 8001, 8002] });
    return reading.state === 'ready' ? reading.workers.map(({ url }) => url.slice('http://10.0.0.7:'.length)) : [];
  };
  deepEqual(urls(), ['8000', '8001', '8002']);
  deepEqual(urls('8002, 8000,9000,x'), ['8000', '8002']);
  deepEqual(urls(''), []);
});

test('an annotation that is no port is left out', () => {
  for (const value of ['none', '', '0', '65536', '-1', '8998 ', '1e3', '123456']) {
    const pod = { ...serving, metadata: { ...serving.metadata, annotations: { 'sglang.ai/bootstrap-port': value } } };
    const reading = readPod(pod, OPTIONS);
    ok(reading.state === 'ready' && !('bootstrap_port' in reading.workers[0]!.labels), value);
  }
});

const condition = fc.record(
  {
    type: fc.constantFrom('Ready', 'ContainersReady', 'PodScheduled'),
    status: fc.constantFrom('True', 'False', 'Unknown'),
  },
  { requiredKeys: [] },
);
const maybe = { requiredKeys: [] };
const pods = fc.record(
  {
    metadata: fc.record(
      {
        name: fc.constantFrom('engine-0', '__proto__', 'a.b'),
        namespace: fc.constant('rl'),
        deletionTimestamp: fc.constantFrom('2026-01-01T00:00:00Z', null),
        annotations: fc.dictionary(fc.constantFrom(OPTIONS.bootstrapPortAnnotation, 'x', '__proto__'), fc.string()),
      },
      maybe,
    ),
    spec: fc.record({ nodeName: fc.constant('gpu-1') }, maybe),
    status: fc.record(
      {
        phase: fc.constantFrom('Pending', 'Running', 'Succeeded', 'Failed', 'Unknown'),
        podIP: fc.oneof(fc.ipV4(), fc.ipV6(), fc.constantFrom('', null)),
        conditions: fc.array(condition),
      },
      maybe,
    ),
  },
  maybe,
) as unknown as fc.Arbitrary<Pod>;

test('of any pod: whatever is missing, it is ready only if everything says so', () => {
  fc.assert(
    fc.property(pods, (pod) => {
      const reading = readPod(pod, OPTIONS);
      const { status, metadata } = pod;
      const hasEnded = status?.phase === 'Succeeded' || status?.phase === 'Failed';
      const isAway = (metadata?.deletionTimestamp ?? null) !== null || hasEnded || !status?.podIP;
      const isReady = status?.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') ?? false;
      equal(reading.state, isAway ? 'away' : isReady ? 'ready' : 'unready');
      if (reading.state === 'away') return;
      const [{ url }] = reading.workers as [PodWorker];
      const address = readWorkerUrl(url, null);
      ok(typeof address !== 'string', `${url} can be a worker`);
      equal(address.endpoint.port, 8000);
    }),
  );
});

test('with roles: labels say which, and of a prefill engine the annotation says its port', () => {
  const roles = { prefill: ['app=p', 'tier=gpu'], decode: ['app=d'] };
  const read = (labels: Readonly<Record<string, string>>) => {
    const reading = readPod({ ...serving, metadata: { ...serving.metadata, labels } }, { ...OPTIONS, roles });
    if (reading.state === 'away') return reading.mistake ?? 'away';
    const [{ role, bootstrapPort }] = reading.workers as [PodWorker];
    return [role, bootstrapPort];
  };
  deepEqual(read({ app: 'p', tier: 'gpu', more: 'x' }), ['prefill', 8998]);
  deepEqual(read({ app: 'd' }), ['decode', null]);
  equal(read({ app: 'p' }), 'away');
  equal(read({}), 'away');
  const both = { prefill: ['role=p'], decode: ['app=d'] };
  const metadata = { ...serving.metadata, labels: { role: 'p', app: 'd' } };
  const reading = readPod({ ...serving, metadata }, { ...OPTIONS, roles: both });
  match(reading.state === 'away' ? reading.mistake! : '', /ambiguous/);
  // Who is gone has made no mistake.
  const gone = readPod({ metadata: { ...metadata, deletionTimestamp: 'now' } }, { ...OPTIONS, roles: both });
  deepEqual(gone, { state: 'away' });
});
