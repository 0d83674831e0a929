import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { pino } from 'pino';
import { loadConfig } from '../../src/config/load.ts';
import { findAccess } from '../../src/fleet/discover/kube-access.ts';
import { startDiscovery } from '../../src/fleet/discover/kubernetes.ts';
import { Fleet } from '../../src/fleet/fleet.ts';
import { Leader, type LeaderTimes } from '../../src/picker/leader.ts';
import { startDiscovering } from '../discovery/scene.ts';
import { whyNotBuilt } from '../harness/built.ts';
import { until } from '../harness/within.ts';
import { Cluster, Pods } from './cluster.ts';
import { createPoolResource, poolOf, poolsPath } from './inference-pools.ts';

/** The machine may be busy. */
const PATIENCE_MS = 30_000;
const skip = await whyNotBuilt('k8s/build.sh', 'a real kube-apiserver');
const MERGE = { 'content-type': 'application/merge-patch+json' };
const ENGINES = { app: 'engine' };

suite('an InferencePool and a Lease with a real kube-apiserver', { skip }, () => {
  const cluster = new Cluster();
  let count = 0;

  before(async () => {
    await cluster.start();
    await createPoolResource(cluster);
  });
  after(() => cluster.stop());

  async function makeNamespace(): Promise<string> {
    const namespace = `pool-${++count}`;
    await cluster.must('POST', '/api/v1/namespaces', { metadata: { name: namespace } });
    cluster.writeKubeconfig(namespace);
    process.env['KUBECONFIG'] = cluster.kubeconfig;
    return namespace;
  }

  test('pods of the pool join and leave, and follow its selector and ports', async (t) => {
    const namespace = await makeNamespace();
    const pods = new Pods(cluster, namespace);
    await pods.create('a', ENGINES);
    await pods.setReady('a', '127.9.0.1');
    await pods.create('b', { app: 'spare' });
    await pods.setReady('b', '127.9.0.2');
    const { router, lines } = await startDiscovering(t, { serviceDiscovery: false, selector: [], poolName: 'engines' });
    const urls = (): string[] => router.fleet.workers.map(({ url }) => url.slice('http://127.9.0.'.length)).toSorted();
    const untilUrls = (...wanted: string[]): Promise<void> =>
      until(`the workers are ${wanted.join(' ')}`, () => String(urls()) === String(wanted), PATIENCE_MS);
    await until('it is logged', () => lines.join('').includes('InferencePool engines: it does not exist'), PATIENCE_MS);
    await cluster.must('POST', poolsPath(namespace), poolOf('other', { app: 'spare' }, 9000));
    await cluster.must('POST', poolsPath(namespace), poolOf('engines', ENGINES, 8000));
    await untilUrls('1:8000');
    const [kept] = router.fleet.workers;
    const change = (spec: object) => cluster.must('PATCH', `${poolsPath(namespace)}/engines`, { spec }, MERGE);
    await change({ targetPorts: [{ number: 8000 }, { number: 8001 }] });
    await untilUrls('1:8000', '1:8001');
    equal(router.fleet.workers[0], kept);
    await pods.patch('a', { annotations: { 'inference.networking.k8s.io/active-ports': '8001' } });
    await untilUrls('1:8001');
    await change({ selector: { matchLabels: { app: 'spare' } } });
    await untilUrls('2:8000', '2:8001');
    await cluster.killApiserver();
    await cluster.startApiserver();
    await change({ targetPorts: [{ number: 8002 }] });
    await untilUrls('2:8002');
    await cluster.must('DELETE', `${poolsPath(namespace)}/engines`);
    await untilUrls();
  });

  test('with the rights that the chart gives, and no other', async (t) => {
    const namespace = await makeNamespace();
    const account = mkdtempSync(join(tmpdir(), 'turnout-account-'));
    const core = `/api/v1/namespaces/${namespace}`;
    const rbac = `/apis/rbac.authorization.k8s.io/v1/namespaces/${namespace}`;
    const metadata = { name: 'turnout' };
    await cluster.must('POST', `${core}/serviceaccounts`, { metadata });
    const wanted = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: { expirationSeconds: 600 } };
    const { status } = (await cluster.must('POST', `${core}/serviceaccounts/turnout/token`, wanted)) as {
      status: { token: string };
    };
    for (const [name, text] of Object.entries({ token: status.token, 'ca.crt': cluster.ca, namespace }))
      writeFileSync(join(account, name), text);
    const only = (resource: string) => ({ resources: [resource], resourceNames: ['turnout'] });
    await cluster.must('POST', `${rbac}/roles`, {
      metadata,
      rules: [
        { apiGroups: [''], resources: ['pods'], verbs: ['list', 'watch'] },
        { apiGroups: ['inference.networking.k8s.io'], ...only('inferencepools'), verbs: ['list', 'watch'] },
        { apiGroups: ['coordination.k8s.io'], resources: ['leases'], verbs: ['create'] },
        { apiGroups: ['coordination.k8s.io'], ...only('leases'), verbs: ['get', 'update'] },
      ],
    });
    await cluster.must('POST', `${rbac}/rolebindings`, {
      metadata,
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: 'turnout' },
      subjects: [{ kind: 'ServiceAccount', name: 'turnout', namespace }],
    });
    const env = { KUBERNETES_SERVICE_HOST: '127.0.0.1', KUBERNETES_SERVICE_PORT: String(cluster.port) };
    const find = () => findAccess(env, account);
    const lines: string[] = [];
    const log = pino({}, { write: (line: string) => void lines.push(line) });
    const config = loadConfig({ poolName: 'turnout' }, {}, undefined);
    const fleet = new Fleet({ pool: { connectTimeoutMs: 1_000, idleTimeoutMs: 1_000 }, tls: null });
    const discovery = await startDiscovery(config, fleet, Math.random, log, find);
    t.after(() => discovery!.close());
    const leader = new Leader({ access: await find(), find, lease: 'turnout', identity: 'me', log });
    t.after(() => leader.close());
    t.after(() => rmSync(account, { recursive: true, force: true }));
    await cluster.must('POST', poolsPath(namespace), poolOf('turnout', ENGINES, 8000));
    const pods = new Pods(cluster, namespace);
    await pods.create('a', ENGINES);
    await pods.setReady('a', '127.9.0.1');
    await until('it finds the pod', () => fleet.workers.length === 1 && discovery!.isSynced, PATIENCE_MS);
    await until('it leads', () => leader.isLeading, PATIENCE_MS);
    const lease = await cluster.must('GET', `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases/turnout`);
    match(JSON.stringify(lease['spec']), /"holderIdentity":"me".*"leaseDurationSeconds":15/);
    const fields = { authorization: `Bearer ${status.token}` };
    equal((await cluster.call('GET', poolsPath(namespace), undefined, fields)).status, 403, 'not the other pools');
    deepEqual(
      lines.filter((line) => line.includes('403')),
      [],
    );
  });

  test('many replicas, one leader at a time: by release, and by a lease that expires', async (t) => {
    const namespace = await makeNamespace();
    const path = `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`;
    const times: LeaderTimes = { durationSecs: 3, deadlineMs: 2_000, renewMs: 100, retryMs: 100 };
    const log = pino({ level: 'silent' });
    const renewTime = '2026-01-01T00:00:00.000000Z';
    const spec = { holderIdentity: 'gone', leaseDurationSeconds: 3, renewTime };
    await cluster.must('POST', path, { metadata: { name: 'picker' }, spec });
    const access = await findAccess();
    const leaders = Array.from(
      { length: 5 },
      (_, i) => new Leader({ access, find: findAccess, lease: 'picker', identity: `replica-${i}`, log, times }),
    );
    t.after(() => Promise.all(leaders.map((leader) => leader.close())));
    let most = 0;
    const leading = (): Leader[] => {
      const found = leaders.filter(({ isLeading }) => isLeading);
      most = Math.max(most, found.length);
      return found;
    };
    const startMs = performance.now();
    const seen = new Set<Leader>();
    while (seen.size < leaders.length) {
      const isNew = (): boolean => {
        const [leader = null] = leading();
        if (leader !== null && !seen.has(leader)) next = leader;
        return next !== null;
      };
      let next: Leader | null = null;
      await until('another one leads', isNew, PATIENCE_MS);
      if (seen.size === 0)
        ok(performance.now() - startMs >= 3_000, 'the lease of the replica that is gone has expired');
      seen.add(next!);
      await next!.close();
    }
    equal(most, 1);
    const { spec: last } = (await cluster.must('GET', `${path}/picker`)) as { spec: object };
    match(JSON.stringify(last), /"leaseTransitions":5/);
  });
});
