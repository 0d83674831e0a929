import { equal, match, throws } from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseAllDocuments } from 'yaml';
import { loadConfig } from '../../src/config/load.ts';
import { turnout } from '../cli/turnout.ts';
import { startEngine } from '../harness/engine.ts';
import { startFakeKube } from '../harness/kube-api.ts';

const PORTS = ['--port', '0', '--prometheus-port', '0'];
const FOUND = ['--service-discovery', '--selector', 'app=engine', 'tier=gpu'];

test('as the other routers are started: pods of the selector, port and namespace are served', async (t) => {
  const engine = await startEngine(t);
  const { hostname, port } = new URL(engine.url);
  const kube = await startFakeKube(t);
  kube.set('a', { ip: hostname, labels: { app: 'engine', tier: 'gpu' }, namespace: 'production' });
  const where = ['--service-discovery-port', port, '--service-discovery-namespace', 'production'];
  const run = turnout(t, ['--policy', 'round_robin', ...PORTS, ...FOUND, ...where]);
  const [, url] = await run.says(/listening on (http:\S+?)"/);
  await run.says(/service discovery: connected/);
  const answered = fetch(`${url}/generate`, { method: 'POST', body: '{}' });
  (await engine.next()).answer('{"text":"hello"}');
  equal(await (await answered).text(), '{"text":"hello"}');
  match(kube.asked[0]!, /^\/api\/v1\/namespaces\/production\/pods\?labelSelector=app%3Dengine%2Ctier%3Dgpu&limit=/);
  run.child.kill('SIGTERM');
  equal(await run.ended, 0);
});

test('what is missing or not there yet is said before anything starts', async (t) => {
  const selector = ['app=engine'];
  const refused = (flags: Parameters<typeof loadConfig>[0], why: RegExp): void =>
    throws(() => loadConfig(flags, {}, undefined), why);
  refused({ serviceDiscovery: true }, /^Error: --service-discovery needs --selector: which pods are engines/);
  refused({ selector }, /^Error: --selector has no effect without --service-discovery/);
  refused({ serviceDiscovery: true, selector: ['app'] }, /^Error: --selector: expected key=value/);
  const [prefillSelector, decodeSelector] = [['app=p'], ['app=d']];
  for (const [name, flag] of [
    ['prefillSelector', '--prefill-selector'],
    ['decodeSelector', '--decode-selector'],
  ] as const) {
    refused({ [name]: ['app=p'] }, new RegExp(`^Error: ${flag} has no effect without --service-discovery`));
    refused({ serviceDiscovery: true, selector, [name]: ['app=p'] }, new RegExp(`${flag} needs --pd-disaggregation`));
    refused({ [name]: ['app'] }, new RegExp(`^Error: ${flag}: expected key=value`));
  }
  const pairs = { serviceDiscovery: true, pdDisaggregation: true };
  refused(pairs, /^Error: --service-discovery needs --prefill-selector and --decode-selector/);
  refused({ ...pairs, prefillSelector, decodeSelector, selector }, /^Error: --selector names engines that serve whole/);
  const twice = { prefillSelector: ['a=b', 'c=d'], decodeSelector: ['c=d', 'a=b'] };
  refused({ ...pairs, ...twice }, /^Error: --prefill-selector and --decode-selector are the same/);
  for (const serviceDiscoveryNamespace of ['A', 'a/b', '', '**', '-a']) {
    refused({ serviceDiscovery: true, selector, serviceDiscoveryNamespace }, /not the name of a namespace/);
  }
  const poolName = 'pool';
  refused({ poolName, serviceDiscovery: true, selector }, /^Error: give either --pool-name.* or --service-discovery/);
  refused({ poolName, endpointTargetPorts: [1] }, /^Error: give either --pool-name.* or --endpoint-target-ports/);
  refused({ poolName, pdDisaggregation: true, policy: 'round_robin' }, /^Error: --pool-name names engines that serve/);
  refused({ poolName: 'A pool' }, /--pool-name: not a name of Kubernetes/);
  refused({ poolName, poolGroup: 'inference.networking.x-k8s.io' }, /--pool-group/);
  refused({ poolNamespace: 'rl' }, /^Error: --pool-namespace has no effect without --pool-name/);
  refused({ endpointTargetPorts: [8000] }, /^Error: --endpoint-target-ports has no effect without --service-discovery/);
  refused({ leaderElection: 'auto' }, /^Error: --leader-election has no effect without --picker-port/);
  const swaps = { pickerPort: 0, leaderElection: 'auto', swapSnapshots: '/snapshots/{identity}' };
  refused(swaps, /^Error: --leader-election: replicas do not share which weights.* need a single picker/);
  const run = turnout(t, [...PORTS, ...FOUND], {
    KUBECONFIG: '',
    HOME: '/nowhere',
    KUBERNETES_SERVICE_HOST: undefined,
  });
  equal(await run.ended, 2);
  match(run.output(), /turnout: --service-discovery: not in a pod with a service account, and neither/);
});

test('doctor looks at the pods, and at the engines in them', async (t) => {
  const engine = await startEngine(t);
  // Doctor waits a minute for the tokens that it asks for.
  engine.onRequest = (request) => request.answer('{}');
  const { hostname, port } = new URL(engine.url);
  const kube = await startFakeKube(t);
  const labels = { app: 'engine', tier: 'gpu' };
  kube.set('a', { ip: hostname, labels });
  kube.set('b', { ip: '127.9.0.2', labels, isReady: false });
  const args = ['doctor', ...PORTS, ...FOUND, '--service-discovery-port', port];
  const good = turnout(t, args);
  equal(await good.ended, 0);
  match(good.output(), /ok {7}2 pods with app=engine,tier=gpu in namespace rl, 1 of them ready/);
  match(good.output(), new RegExp(`Worker ${engine.url}\n *ok {7}/health answers 200`));
  kube.set('p', { ip: hostname, labels: { app: 'p' } });
  kube.set('d', { ip: '127.9.0.4', labels: { app: 'd' }, isReady: false });
  kube.set('x', { ip: '127.9.0.5', labels: { app: 'p', role: 'd' } });
  const roles = ['--pd-disaggregation', '--prefill-selector', 'app=p', '--decode-selector', 'role=d'];
  const pairs = turnout(t, ['doctor', ...PORTS, '--service-discovery', ...roles, '--service-discovery-port', port]);
  equal(await pairs.ended, 1);
  match(pairs.output(), /ok {7}1 pods for prefill, with app=p in namespace rl, 1 of them ready/);
  match(pairs.output(), /PROBLEM {2}0 pods for decode, with role=d in namespace rl, 0 of them ready/);
  match(pairs.output(), /PROBLEM {2}pod x has the labels of --prefill-selector and of --decode-selector/);
  kube.refusal = { status: 403, body: '{"message":"pods is forbidden"}' };
  const bad = turnout(t, args);
  equal(await bad.ended, 1);
  match(
    bad.output(),
    /PROBLEM {2}127\S+: 403: pods is forbidden\. Its role must let it list and watch pods.*\. Without TLS/,
  );
});

test('the manifests that are shipped start a router that finds pods', async (t) => {
  for (const [name, labels] of [
    ['router', [{ app: 'engine' }]],
    [
      'router-pairs',
      [
        { app: 'engine', role: 'prefill' },
        { app: 'engine', role: 'decode' },
      ],
    ],
  ] as const) {
    const path = join(import.meta.dirname, `../../../deploy/kubernetes/${name}.yaml`);
    const [deployment] = parseAllDocuments(readFileSync(path, 'utf8')).map((document) => document.toJS() as Manifest);
    const args = deployment!.spec.template.spec.containers[0]!.args.filter((arg) => !/key-file|--host/.test(arg));
    const kube = await startFakeKube(t);
    for (const [n, each] of labels.entries()) kube.set(`p${n}`, { ip: `127.9.0.${n + 1}`, labels: each });
    const run = turnout(t, [...args, ...PORTS]);
    await run.says(new RegExp(`"workers":${labels.length}.*service discovery: connected`));
    run.child.kill('SIGKILL');
    await run.ended;
  }
});

interface Manifest {
  readonly spec: {
    readonly template: { readonly spec: { readonly containers: readonly { readonly args: readonly string[] }[] } };
  };
}
