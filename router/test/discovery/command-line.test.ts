import { equal, match, throws } from 'node:assert/strict';
import { test } from 'node:test';
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
  refused({ selector }, /^Error: --selector needs --service-discovery/);
  refused({ serviceDiscovery: true, selector: ['app'] }, /^Error: --selector: expected key=value/);
  for (const role of ['prefill', 'decode']) {
    const flags = { serviceDiscovery: true, selector, [`${role}Selector`]: ['app=p'] };
    refused(flags, new RegExp(`^Error: --${role}-selector: pods are not told apart by their roles yet`));
  }
  for (const serviceDiscoveryNamespace of ['A', 'a/b', '', '**', '-a']) {
    refused({ serviceDiscovery: true, selector, serviceDiscoveryNamespace }, /not the name of a namespace/);
  }
  const run = turnout(t, [...PORTS, ...FOUND], {
    KUBECONFIG: '',
    HOME: '/nowhere',
    KUBERNETES_SERVICE_HOST: undefined,
  });
  equal(await run.ended, 2);
  match(run.output(), /turnout: --service-discovery: this is no pod with a service account, and there is neither/);
});

test('doctor looks at the pods, and at the engines in them', async (t) => {
  const engine = await startEngine(t);
  const { hostname, port } = new URL(engine.url);
  const kube = await startFakeKube(t);
  const labels = { app: 'engine', tier: 'gpu' };
  kube.set('a', { ip: hostname, labels });
  kube.set('b', { ip: '127.9.0.2', labels, isReady: false });
  const args = ['doctor', ...PORTS, ...FOUND, '--service-discovery-port', port];
  const good = turnout(t, args);
  await good.ended;
  match(good.output(), /ok {7}2 pods with app=engine,tier=gpu in namespace rl, 1 of them ready/);
  match(good.output(), new RegExp(`Worker ${engine.url}\n *ok {7}/health answers 200`));
  kube.refusal = { status: 403, body: '{"message":"pods is forbidden"}' };
  const bad = turnout(t, args);
  equal(await bad.ended, 1);
  match(bad.output(), /PROBLEM {2}127\S+: 403: pods is forbidden\. Its role must let it list and watch pods/);
});
