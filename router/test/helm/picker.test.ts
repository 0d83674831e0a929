import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { loadConfig } from '../../src/config/load.ts';
import { whyNotBuilt } from '../harness/built.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { type Manifest, chart, helm, kubernetes, manifests, one, podOf } from './helm.ts';

const set = (...values: string[]): string[] => values.flatMap((value) => ['--set', value]);
const picker = set('picker.enabled=true', 'picker.inferencePool.matchLabels.app=vllm');
const skip = await whyNotBuilt('helm/build.sh', 'helm');

const kindsOf = (all: readonly Manifest[]): string =>
  all
    .map(({ kind }) => kind)
    .toSorted()
    .join(' ');

const rolesOf = (all: readonly Manifest[]): Manifest[] => all.filter(({ kind }) => /^(Cluster)?Role$/.test(kind));

suite('the Helm chart of an endpoint picker', { skip }, () => {
  test('helm lint reports nothing', async () => {
    const text = await helm(
      'lint',
      '--strict',
      chart,
      ...kubernetes,
      ...picker,
      ...set('podDisruptionBudget.enabled=true', 'engineAutoscaling.enabled=true', 'networkPolicy.enabled=true'),
    );
    assert.match(text, /1 chart\(s\) linted, 0 chart\(s\) failed/);
    assert.doesNotMatch(text, /\[(WARNING|ERROR)\]/);
  });

  test('a pool, two pickers of which one leads, and what they may do', async (t) => {
    const all = await manifests(...picker, ...set('picker.inferencePool.targetPorts={8000,8001}'));
    assert.equal(
      kindsOf(all),
      'ConfigMap Deployment InferencePool Role Role RoleBinding RoleBinding Service ServiceAccount',
    );
    assert.deepEqual(one(all, 'InferencePool').spec, {
      selector: { matchLabels: { app: 'vllm' } },
      targetPorts: [{ number: 8000 }, { number: 8001 }],
      endpointPickerRef: { name: 'turnout', port: { number: 9002 }, failureMode: 'FailClose' },
    });
    const [ofPods, ofLeader] = rolesOf(all);
    assert.deepEqual(ofPods!.rules, [
      { apiGroups: [''], resources: ['pods'], verbs: ['list', 'watch'] },
      {
        apiGroups: ['inference.networking.k8s.io'],
        resources: ['inferencepools'],
        resourceNames: ['turnout'],
        verbs: ['list', 'watch'],
      },
    ]);
    assert.deepEqual(ofLeader!.rules, [
      { apiGroups: ['coordination.k8s.io'], resources: ['leases'], verbs: ['create'] },
      {
        apiGroups: ['coordination.k8s.io'],
        resources: ['leases'],
        resourceNames: ['turnout'],
        verbs: ['get', 'update'],
      },
    ]);
    const { replicas, strategy } = one(all, 'Deployment').spec as { replicas: number; strategy: object };
    assert.equal(replicas, 2);
    assert.deepEqual(strategy, { rollingUpdate: { maxUnavailable: '100%', maxSurge: '100%' } });
    const pod = podOf(all, 'Deployment');
    assert.equal(pod.automountServiceAccountToken, true);
    const [{ livenessProbe, readinessProbe, ports, lifecycle }] = pod.containers;
    assert.deepEqual(livenessProbe.grpc, { port: 9003, service: 'liveness' });
    assert.deepEqual(readinessProbe.grpc, { port: 9003, service: 'readiness' });
    assert.equal(lifecycle, undefined, 'a leader that sleeps before its end would keep the lease');
    assert.deepEqual(
      ports.map(({ name }) => name),
      ['http', 'metrics', 'grpc', 'grpc-health'],
    );
    const service = one(all, 'Service').spec as { publishNotReadyAddresses?: boolean; ports: { name: string }[] };
    assert.equal(service.publishNotReadyAddresses, undefined, 'only the leader is asked');
    assert.ok(service.ports.some(({ name }) => name === 'grpc'));
    const file = join(temporaryFolder(t), 'turnout.yaml');
    writeFileSync(file, one(all, 'ConfigMap').data!['turnout.yaml']!);
    const config = loadConfig({}, {}, file);
    assert.deepEqual(
      [config.pickerHost, config.pickerPort, config.pickerHealthPort, config.poolName, config.leaderElection],
      ['0.0.0.0', 9002, 9003, 'turnout', 'turnout'],
    );
  });

  test('one picker keeps its sessions: a StatefulSet with a claim, and no leader', async () => {
    const all = await manifests(...picker, ...set('picker.replicas=1'));
    assert.equal(kindsOf(all), 'ConfigMap InferencePool Role RoleBinding Service ServiceAccount StatefulSet');
    assert.ok(Array.isArray(one(all, 'StatefulSet').spec!['volumeClaimTemplates']));
    assert.doesNotMatch(one(all, 'ConfigMap').data!['turnout.yaml']!, /leader-election/);
    assert.doesNotMatch(JSON.stringify(one(all, 'Role').rules), /leases/);
  });

  test('an existing pool, or no pool', async () => {
    const existing = await manifests(
      ...set('picker.enabled=true', 'picker.inferencePool.create=false', 'picker.inferencePool.name=other'),
    );
    assert.ok(existing.every(({ kind }) => kind !== 'InferencePool'));
    assert.match(one(existing, 'ConfigMap').data!['turnout.yaml']!, /^pool-name: other$/m);
    const none = await manifests(
      ...set(
        'picker.enabled=true',
        'picker.inferencePool.create=false',
        'options.service-discovery=true',
        'options.selector={app=engine}',
      ),
    );
    assert.doesNotMatch(one(none, 'ConfigMap').data!['turnout.yaml']!, /pool-name/);
    assert.doesNotMatch(JSON.stringify(rolesOf(none)), /inferencepools/);
  });

  test('the Lease is kept in the namespace of the release, wherever the engines are', async () => {
    const namespaces = async (...values: string[]): Promise<unknown> =>
      rolesOf(await manifests(...set('picker.enabled=true', 'picker.inferencePool.create=false', ...values))).map(
        ({ kind, metadata }) => [kind, metadata.name, metadata.namespace ?? 'rl'],
      );
    const leader = ['Role', 'turnout-leader', 'rl'];
    assert.deepEqual(await namespaces('picker.inferencePool.name=other', 'options.pool-namespace=engines'), [
      ['Role', 'turnout', 'engines'],
      leader,
    ]);
    const discovery = ['options.service-discovery=true', 'options.selector={app=engine}'];
    assert.deepEqual(await namespaces(...discovery, 'options.service-discovery-namespace=engines'), [
      ['Role', 'turnout', 'engines'],
      leader,
    ]);
    assert.deepEqual(await namespaces(...discovery, 'options.service-discovery-namespace=*'), [
      ['ClusterRole', 'rl-turnout', 'rl'],
      leader,
    ]);
    assert.deepEqual(await namespaces('options.worker-urls={http://engine:8000}'), [leader]);
    await assert.rejects(
      manifests(...picker, ...set('options.pool-namespace=engines')),
      /options\.pool-namespace: the chart creates the InferencePool in the namespace of the release/,
    );
  });

  test('a pool without labels is refused with what to give', async () => {
    await assert.rejects(
      manifests(...set('picker.enabled=true')),
      /picker\.inferencePool\.matchLabels: which pods are engines/,
    );
    await assert.rejects(manifests(...picker, ...set('picker.inferencePool.failureMode=Open')), /failureMode/);
    await assert.rejects(manifests(...picker, ...set('picker.inferencePool.targetPorts={}')), /targetPorts/);
  });

  test('replicas with weight swaps are refused, one replica is not', async () => {
    const swaps = [...picker, ...set('options.swap-snapshots=/snapshots/{identity}')];
    await assert.rejects(manifests(...swaps), /picker\.replicas: weight swaps .* need one replica/);
    await manifests(...swaps, ...set('picker.replicas=1'));
  });

  test('engines are scaled by requests that wait, and an eviction can be prevented', async () => {
    const all = await manifests(
      ...picker,
      ...set(
        'engineAutoscaling.enabled=true',
        'engineAutoscaling.scaleTargetRef.name=vllm',
        'engineAutoscaling.metricLabels.namespace=rl',
      ),
      ...set('podDisruptionBudget.enabled=true', 'networkPolicy.enabled=true'),
    );
    const { scaleTargetRef, metrics } = one(all, 'HorizontalPodAutoscaler').spec as {
      scaleTargetRef: object;
      metrics: { external: { metric: { name: string; selector: object } } }[];
    };
    assert.deepEqual(scaleTargetRef, { apiVersion: 'apps/v1', kind: 'Deployment', name: 'vllm' });
    assert.deepEqual(
      metrics.map(({ external: { metric } }) => metric),
      ['turnout_held_requests', 'turnout_queue_depth', 'turnout_requests_in_flight'].map((name) => ({
        name,
        selector: { matchLabels: { namespace: 'rl' } },
      })),
    );
    assert.deepEqual(one(all, 'PodDisruptionBudget').spec!['minAvailable'], 1);
    assert.match(JSON.stringify(one(all, 'NetworkPolicy').spec), /"port":"grpc"/);
  });
});
