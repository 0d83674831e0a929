import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { whyNotBuilt } from '../harness/built.ts';
import { type Answer, Cluster } from '../k8s/cluster.ts';
import { createPoolResource, customResource } from '../k8s/inference-pools.ts';
import { type Manifest, chart, helm, manifests } from './helm.ts';

const skip =
  (await whyNotBuilt('helm/build.sh', 'helm')) || (await whyNotBuilt('k8s/build.sh', 'a real kube-apiserver'));

const groups: Readonly<Record<string, string>> = {
  ConfigMap: 'configmaps',
  Service: 'services',
  ServiceAccount: 'serviceaccounts',
  StatefulSet: 'statefulsets',
  Role: 'roles',
  RoleBinding: 'rolebindings',
  ServiceMonitor: 'servicemonitors',
  NetworkPolicy: 'networkpolicies',
  Deployment: 'deployments',
  InferencePool: 'inferencepools',
  PodDisruptionBudget: 'poddisruptionbudgets',
  HorizontalPodAutoscaler: 'horizontalpodautoscalers',
};

/** What the Prometheus operator installs, with the fields that the chart sets: others are refused. */
const text = { type: 'string' };
const serviceMonitors = customResource('ServiceMonitor', 'monitoring.coreos.com', {
  required: ['endpoints', 'selector'],
  properties: {
    selector: {
      type: 'object',
      properties: { matchLabels: { type: 'object', additionalProperties: text } },
    },
    endpoints: {
      type: 'array',
      items: {
        type: 'object',
        properties: { port: text, path: text, interval: { ...text, pattern: '^[0-9]+(ms|s|m|h)$' } },
      },
    },
  },
});

const everything = [
  'options.service-discovery=true',
  'options.selector={app=engine}',
  'keys.existingSecret=turnout-keys',
  'keys.workerKey=worker.key',
  'ports.admin=30001',
  'networkPolicy.enabled=true',
  'grafanaDashboard.enabled=true',
  'networkPolicy.http[0].namespaceSelector.matchLabels.team=rl',
].flatMap((value) => ['--set', value]);

suite('the Helm chart in a real kube-apiserver', { skip }, () => {
  const cluster = new Cluster();

  before(async () => {
    await cluster.start();
    await cluster.must('POST', '/api/v1/namespaces', { metadata: { name: 'rl' } });
    cluster.writeKubeconfig('rl');
  });
  after(() => cluster.stop());

  const run = (verb: string, ...args: string[]): Promise<string> =>
    helm(verb, ...args, '--namespace', 'rl', '--kubeconfig', cluster.kubeconfig);

  /** Applies a manifest in the server; an unknown or repeated field is an error. */
  function apply({ apiVersion, kind, metadata, ...rest }: Manifest): Promise<Answer> {
    const prefix = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
    const path = `${prefix}/namespaces/rl/${groups[kind]}/${metadata.name}?fieldManager=test&fieldValidation=Strict&dryRun=All&force=true`;
    const type = { 'content-type': 'application/apply-patch+yaml' };
    return cluster.call('PATCH', path, { apiVersion, kind, metadata, ...rest }, type);
  }

  test('every manifest passes the validation of the server', async () => {
    for (const each of await manifests(...everything)) {
      const { status, body } = await apply(each);
      assert.ok(status < 300, `${each.kind}: ${JSON.stringify(body)}`);
    }
    const [first] = await manifests();
    const refused = await apply({ ...first!, spec: { nosuch: 1 } });
    assert.match(JSON.stringify(refused.body), /field not declared in schema/);
  });

  test('a release is installed, upgraded and removed; its account may list pods and nothing else', async () => {
    await run('install', 'turnout', chart, ...everything);
    const may = async (resource: string, verb: string): Promise<unknown> => {
      const spec = {
        user: 'system:serviceaccount:rl:turnout',
        resourceAttributes: { namespace: 'rl', resource, verb },
      };
      const answer = await cluster.must('POST', '/apis/authorization.k8s.io/v1/subjectaccessreviews', { spec });
      return (answer['status'] as { allowed: boolean }).allowed;
    };
    assert.deepEqual(
      await Promise.all([may('pods', 'list'), may('pods', 'watch'), may('pods', 'delete'), may('secrets', 'get')]),
      [true, true, false, false],
    );
    await run('upgrade', 'turnout', chart, ...everything, '--set', 'options.queue-size=7', '--set', 'ports.admin=0');
    const config = await cluster.must('GET', '/api/v1/namespaces/rl/configmaps/turnout');
    assert.match((config['data'] as Record<string, string>)['turnout.yaml']!, /^queue-size: 7$/m);
    await run('uninstall', 'turnout');
    assert.equal((await cluster.call('GET', '/apis/apps/v1/namespaces/rl/statefulsets/turnout')).status, 404);
  });

  test('the manifests of a picker pass, and its account may follow its pool and keep its lease', async () => {
    await createPoolResource(cluster);
    const values = [
      'picker.enabled=true',
      'picker.inferencePool.matchLabels.app=vllm',
      'podDisruptionBudget.enabled=true',
    ]
      .concat(
        'engineAutoscaling.enabled=true',
        'engineAutoscaling.metricLabels.namespace=rl',
        'networkPolicy.enabled=true',
      )
      .flatMap((value) => ['--set', value]);
    for (const each of await manifests(...values)) {
      const { status, body } = await apply(each);
      assert.ok(status < 300, `${each.kind}: ${JSON.stringify(body)}`);
    }
    await run('install', 'picker-turnout', chart, ...values);
    const may = async (group: string, resource: string, verb: string, name?: string): Promise<unknown> => {
      const resourceAttributes = { namespace: 'rl', group, resource, verb, ...(name === undefined ? {} : { name }) };
      const spec = { user: 'system:serviceaccount:rl:picker-turnout', resourceAttributes };
      const answer = await cluster.must('POST', '/apis/authorization.k8s.io/v1/subjectaccessreviews', { spec });
      return (answer['status'] as { allowed: boolean }).allowed;
    };
    const [pools, leases] = ['inference.networking.k8s.io', 'coordination.k8s.io'];
    assert.deepEqual(
      await Promise.all([
        may(pools, 'inferencepools', 'watch', 'picker-turnout'),
        may(pools, 'inferencepools', 'list'),
        may(leases, 'leases', 'update', 'picker-turnout'),
        may(leases, 'leases', 'update', 'other'),
        may(leases, 'leases', 'create'),
        may('', 'pods', 'delete'),
      ]),
      [true, false, true, false, true, false],
    );
    await run('uninstall', 'picker-turnout');
  });

  test('a ServiceMonitor needs the Prometheus operator, and is accepted with it', async () => {
    const values = ['--set', 'serviceMonitor.enabled=true'];
    await assert.rejects(run('install', 'turnout', chart, ...values), /no matches for kind "ServiceMonitor"/);
    await cluster.must('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', serviceMonitors);
    const monitor = (await manifests(...values)).find(({ kind }) => kind === 'ServiceMonitor');
    let answer: Answer;
    do answer = await apply(monitor!);
    while (answer.status === 404); // until the API server serves the new kind
    assert.ok(answer.status < 300, JSON.stringify(answer.body));
    await run('install', 'turnout', chart, ...values);
  });
});
