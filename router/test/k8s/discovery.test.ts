import { deepEqual, equal, ok } from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, after, before, suite, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { parseAllDocuments } from 'yaml';
import { loadConfig } from '../../src/config/load.ts';
import { findAccess } from '../../src/fleet/discover/kube-access.ts';
import { startDiscovery } from '../../src/fleet/discover/kubernetes.ts';
import { Fleet } from '../../src/fleet/fleet.ts';
import { startDiscovering, urlOf } from '../discovery/scene.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { whyNotBuilt } from '../harness/built.ts';
import { startEngine } from '../harness/engine.ts';
import { PairWorld } from '../harness/pairs.ts';
import { until } from '../harness/within.ts';
import { Cluster, Pods } from './cluster.ts';
import { startShortWatches } from './short-watches.ts';

/** The machine may be busy with two servers that know nothing of each other's needs. */
const PATIENCE_MS = 30_000;
const skip = await whyNotBuilt('k8s/build.sh', 'a real kube-apiserver');
const LABELS = { app: 'engine' };

suite('service discovery with a real kube-apiserver', { skip }, () => {
  const cluster = new Cluster();
  let count = 0;

  before(() => cluster.start());
  after(() => cluster.stop());

  /** A namespace of its own, and a router that looks there. */
  async function scene(t: TestContext, options: object = {}, server = cluster.url) {
    const namespace = `rl-${++count}`;
    await cluster.must('POST', '/api/v1/namespaces', { metadata: { name: namespace } });
    cluster.writeKubeconfig(namespace, server);
    process.env['KUBECONFIG'] = cluster.kubeconfig;
    const found = await startDiscovering(t, options);
    const urls = (): string[] => found.router.fleet.workers.map(({ url }) => url).toSorted();
    const untilFleet = (...ips: string[]): Promise<void> =>
      until(
        `the fleet is ${ips.join(' ')}`,
        () => JSON.stringify(urls()) === JSON.stringify(ips.map(urlOf).toSorted()),
        PATIENCE_MS,
      );
    return { ...found, namespace, urls, untilFleet, pods: new Pods(cluster, namespace) };
  }

  test('join, drain, leave: a request under way ends in a pod that is being deleted', async (t) => {
    const engine = await startEngine(t);
    const { hostname, port } = new URL(engine.url);
    const { router, pods } = await scene(t, { serviceDiscoveryPort: Number(port) });
    const { workers } = router.fleet;
    await pods.create('other', { app: 'database' });
    await pods.setReady('other', '127.9.0.9');
    await pods.create('a', LABELS);
    await pods.setReady('a', hostname, false);
    await pods.create('b', LABELS);
    await pods.setReady('b', '127.9.0.2');
    await until('b joins', () => workers.length === 1, PATIENCE_MS);
    equal(workers[0]!.labels['pod'], 'b', 'a is not ready yet');
    await pods.setReady('a', hostname);
    await until('a joins', () => workers.length === 2, PATIENCE_MS);
    await pods.vanish('b');
    await until('b leaves', () => workers.length === 1, PATIENCE_MS);

    const client = await connectClient(t, router.url);
    client.write(request('POST', '/generate', '{}'));
    const asked = await engine.next();
    await pods.delete('a');
    await until('a leaves', () => workers.length === 0, PATIENCE_MS);
    const still = (await cluster.must('GET', `${pods.path}/a`)) as { metadata: { deletionTimestamp?: string } };
    ok(still.metadata.deletionTimestamp !== undefined, 'it is there, and being deleted');
    asked.answer('{"text":"whole"}');
    equal((await client.answer('POST')).text, '{"text":"whole"}');
    await pods.vanish('a');
  });

  test('labels and annotations that change', async (t) => {
    const { router, pods, untilFleet } = await scene(t);
    await pods.create('a', LABELS, { 'sglang.ai/bootstrap-port': '8998' });
    await pods.create('b', { app: 'spare' });
    await pods.setReady('a', '127.9.0.1');
    await pods.setReady('b', '127.9.0.2');
    await untilFleet('127.9.0.1');
    const [worker] = router.fleet.workers;
    equal(worker!.labels['bootstrap_port'], '8998');
    await pods.patch('b', { labels: LABELS });
    await untilFleet('127.9.0.1', '127.9.0.2');
    await pods.patch('a', { annotations: { 'sglang.ai/bootstrap-port': '9001' } });
    await until('the annotation is followed', () => worker!.labels['bootstrap_port'] === '9001', PATIENCE_MS);
    equal(router.fleet.workers[0], worker);
    await pods.patch('a', { labels: { app: 'spare' } });
    await untilFleet('127.9.0.2');
  });

  test('pairs: labels give the roles, the annotation gives the bootstrap port', async (t) => {
    const world = new PairWorld(t);
    const { engine } = await world.add('prefill', { host: '127.9.1.1' });
    const serviceDiscoveryPort = Number(new URL(engine.url).port);
    await world.add('decode', { host: '127.9.2.1', port: serviceDiscoveryPort });
    const selectors = { prefillSelector: ['role=prefill', 'env=prod'], decodeSelector: ['role=decode', 'env=prod'] };
    const pairs = { pdDisaggregation: true, policy: 'round_robin' };
    const { router, pods, lines } = await scene(t, { ...pairs, ...selectors, serviceDiscoveryPort });
    const roles = (): string =>
      router.fleet.workers
        .map(({ labels, role }) => `${labels['pod']} ${role}`)
        .toSorted()
        .join(', ');
    const untilRoles = (wanted: string) => until(`the fleet is ${wanted}`, () => roles() === wanted, PATIENCE_MS);
    const port = (text: string) => ({ 'sglang.ai/bootstrap-port': text });
    const prefill = { role: 'prefill', env: 'prod' };
    await pods.create('p', prefill, port('8998'));
    await pods.create('d', { role: 'decode', env: 'prod' });
    await pods.create('other', { role: 'prefill', env: 'test' });
    await pods.create('third', { role: 'spare', env: 'prod' });
    for (const [name, ip] of Object.entries({ p: '127.9.1.1', d: '127.9.2.1', other: '127.9.1.9', third: '127.9.1.8' }))
      await pods.setReady(name, ip);
    await untilRoles('d decode, p prefill');
    const ask = () => send(t, router.url, request('POST', '/generate', '{"text":"hello"}'));
    equal((await ask()).text, '{"text":"decode0","meta_info":{}}');
    deepEqual(world.decode[0]!.seen.at(-1)!.ports, [8998]);
    const worker = router.fleet.workers.find(({ role }) => role === 'prefill')!;
    await pods.patch('p', { annotations: port('9001') });
    await until('the port follows', () => worker.bootstrapPort === 9001, PATIENCE_MS);
    equal((await ask()).status, 200);
    deepEqual(world.decode[0]!.seen.at(-1)!.ports, [9001]);
    deepEqual([...world.prefill[0]!.wrong, ...world.decode[0]!.wrong], []);

    await pods.patch('third', { labels: { role: 'prefill' } });
    await untilRoles('d decode, p prefill, third prefill');
    await pods.patch('third', { labels: { role: 'decode' } });
    await untilRoles('d decode, p prefill, third decode');
    await pods.patch('p', { labels: { role: null } });
    await untilRoles('d decode, third decode');
    await pods.delete('third');
    await untilRoles('d decode');
    ok(!lines.join('').includes('no connection'));
  });

  test('with the role that is shipped, and no other right, from within a pod', async (t) => {
    const namespace = `rl-${++count}`;
    await cluster.must('POST', '/api/v1/namespaces', { metadata: { name: namespace } });
    const account = mkdtempSync(join(tmpdir(), 'turnout-account-'));
    t.after(() => rmSync(account, { recursive: true, force: true }));
    const documents = parseAllDocuments(
      readFileSync(join(import.meta.dirname, '../../../deploy/kubernetes/rbac.yaml'), 'utf8'),
    ).map((document) => document.toJS() as { apiVersion: string; kind: string; subjects?: { namespace?: string }[] });
    deepEqual(
      documents.map(({ kind }) => kind),
      ['ServiceAccount', 'Role', 'RoleBinding'],
    );
    const apply = async (document: (typeof documents)[number]): Promise<void> => {
      const root = document.apiVersion === 'v1' ? '/api/v1' : `/apis/${document.apiVersion}`;
      // As `kubectl apply -n` does.
      for (const subject of document.subjects ?? []) subject.namespace ??= namespace;
      await cluster.must('POST', `${root}/namespaces/${namespace}/${document.kind.toLowerCase()}s`, document);
    };
    await apply(documents[0]!);
    const at = `/api/v1/namespaces/${namespace}/serviceaccounts/turnout/token`;
    const wanted = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: { expirationSeconds: 600 } };
    const { status } = (await cluster.must('POST', at, wanted)) as { status: { token: string } };
    writeFileSync(join(account, 'token'), status.token);
    writeFileSync(join(account, 'ca.crt'), cluster.ca);
    writeFileSync(join(account, 'namespace'), namespace);

    const config = loadConfig({ serviceDiscovery: true, selector: ['app=engine'] }, {}, undefined);
    const fleet = new Fleet({ pool: { connectTimeoutMs: 1_000, idleTimeoutMs: 1_000 }, tls: null });
    const lines: string[] = [];
    const say = (fields: object, text: string): number => lines.push(`${text} ${JSON.stringify(fields)}`);
    const env = { KUBERNETES_SERVICE_HOST: '127.0.0.1', KUBERNETES_SERVICE_PORT: String(cluster.port) };
    const find = () => findAccess(env, account);
    const discovery = await startDiscovery(config, fleet, Math.random, { info: say, warn: say }, find);
    t.after(() => discovery!.close());
    await until('it is told what it may not do', () => lines.join('').includes('403: pods is forbidden'), PATIENCE_MS);
    await apply(documents[1]!);
    await apply(documents[2]!);
    const pods = new Pods(cluster, namespace);
    await pods.create('a', LABELS);
    await pods.setReady('a', '127.9.0.1');
    await until('it finds the pod', () => fleet.workers.length === 1 && discovery!.isConnected, PATIENCE_MS);
    equal(fleet.workers[0]!.url, 'http://127.9.0.1:80');

    const [, role] = documents as unknown as [unknown, { rules: unknown }];
    deepEqual(role.rules, [{ apiGroups: [''], resources: ['pods'], verbs: ['list', 'watch'] }]);
    const refused = await cluster.call('GET', `${pods.path}/a`, undefined, { authorization: `Bearer ${status.token}` });
    equal(refused.status, 403, 'not even one pod by its name');
  });

  test('410 Gone: pods are listed again, and those that remain stay the same workers', async (t) => {
    await cluster.killApiserver();
    // Otherwise the API server answers old watches from memory.
    await cluster.startApiserver('--watch-cache=false');
    const proxy = await startShortWatches(t, cluster);
    const { router, pods, lines, untilFleet } = await scene(t, {}, proxy.url);
    for (const n of [1, 2, 3]) {
      await pods.create(`p${n}`, LABELS);
      await pods.setReady(`p${n}`, `127.9.0.${n}`);
    }
    await untilFleet('127.9.0.1', '127.9.0.2', '127.9.0.3');
    const last = router.fleet.workers[2];
    const { promise, resolve } = Promise.withResolvers<void>();
    proxy.hold = promise;
    const { watches } = proxy;
    await until('the next watch waits', () => proxy.watches > watches, PATIENCE_MS);
    await pods.vanish('p1');
    await pods.vanish('p2');
    await pods.create('p4', LABELS);
    await pods.setReady('p4', '127.9.0.4');
    await cluster.compact();
    equal(router.fleet.workers.length, 3, 'it knows of nothing yet');
    resolve();
    await untilFleet('127.9.0.3', '127.9.0.4');
    equal(proxy.gone, 1, 'the API server really said 410');
    equal(router.fleet.workers[0], last);
    ok(!lines.join('').includes('no connection'), 'which is nothing to warn of');
    await cluster.killApiserver();
    await cluster.startApiserver();
  });

  test('the API server dies and comes back: the last known fleet stays meanwhile', async (t) => {
    const { router, pods, lines, untilFleet, metric } = await scene(t);
    for (const n of [1, 2, 3]) {
      await pods.create(`p${n}`, LABELS);
      await pods.setReady(`p${n}`, `127.9.0.${n}`);
    }
    await untilFleet('127.9.0.1', '127.9.0.2', '127.9.0.3');
    const before = [...router.fleet.workers];
    await cluster.killApiserver();
    await until('it is noticed', async () => (await metric('turnout_discovery_connected')) === 0, PATIENCE_MS);
    await until('tries fail', () => lines.join('').includes('ECONNREFUSED'), PATIENCE_MS);
    deepEqual(router.fleet.workers, before);
    equal(await metric('turnout_discovered_workers'), 3);
    await cluster.startApiserver();
    await pods.delete('p1');
    await pods.create('p4', LABELS);
    await pods.setReady('p4', '127.9.0.4');
    await untilFleet('127.9.0.2', '127.9.0.3', '127.9.0.4');
    await until('it is connected', async () => (await metric('turnout_discovery_connected')) === 1, PATIENCE_MS);
    deepEqual(router.fleet.workers.slice(0, 2), before.slice(1), 'who stayed is the same worker');
  });

  test('200 pods come and half of them go within 30 s: none is missed, none joins twice', async (t) => {
    const { router, pods, urls, untilFleet, metric } = await scene(t);
    const seen: string[] = [];
    router.fleet.onEvent((event, worker) => {
      if (event === 'added' || event === 'removed') seen.push(`${event} ${worker.labels['pod']}`);
    });
    const stays: string[] = [];
    const sinceMs = performance.now();
    const COUNT = 200;
    const SPAN_MS = 30_000;
    let next = 0;
    const live = async (n: number): Promise<void> => {
      const [name, ip] = [`p${n}`, `127.9.${1 + (n >> 7)}.${1 + (n & 127)}`];
      await pods.create(name, LABELS);
      await pods.setReady(name, ip);
      if (n % 2 === 0) return void stays.push(ip);
      await until(`${name} joined`, () => seen.includes(`added ${name}`), PATIENCE_MS);
      await pods.delete(name);
      if (n % 4 === 1) await pods.vanish(name);
    };
    const work = async (): Promise<void> => {
      for (let n = next++; n < COUNT; n = next++) {
        await delay(Math.max(0, (n / COUNT) * SPAN_MS - (performance.now() - sinceMs)));
        await live(n);
      }
    };
    await Promise.all(Array.from({ length: 8 }, work));
    t.diagnostic(`${COUNT} pods in ${((performance.now() - sinceMs) / 1000).toFixed(1)} s`);
    await untilFleet(...stays);
    const wanted = Array.from({ length: COUNT }, (_, n) =>
      n % 2 === 0 ? [`added p${n}`] : [`added p${n}`, `removed p${n}`],
    ).flat();
    deepEqual(seen.toSorted(), wanted.toSorted());
    equal(await metric('turnout_discovered_workers'), 100);

    // Also who comes now, with a hundred pods to list of which fifty are being deleted.
    const again = await startDiscovering(t);
    await again.untilFleet(...urls());
  });
});
