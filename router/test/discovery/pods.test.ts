import { deepEqual, equal, match, notEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { connectClient } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { until } from '../harness/within.ts';
import { PORT, startDiscoveryScene, urlOf } from './scene.ts';

test('ready pods with the labels are workers, from the start and as they come', async (t) => {
  const { kube, router, lines, untilFleet, metric } = await startDiscoveryScene(t, {}, (before) => {
    before.set('a', { ip: '127.9.0.1' });
    before.set('other', { ip: '127.9.0.2', labels: { app: 'database' } });
    before.set('elsewhere', { ip: '127.9.0.3', namespace: 'staging' });
    before.set('starting', { ip: '127.9.0.4', isReady: false });
  });
  await untilFleet('127.9.0.1');
  deepEqual(router.fleet.workers[0]!.labels, { pod: 'a', namespace: 'rl', node: 'node-1' });
  kube.set('b', { isReady: false });
  kube.set('b', { ip: '127.9.0.5' });
  kube.set('starting', { isReady: true });
  kube.set('b', { isReady: true });
  await untilFleet('127.9.0.1', '127.9.0.4', '127.9.0.5');
  equal(await metric('turnout_discovered_workers'), 3);
  equal(await metric('turnout_discovery_connected'), 1);
  deepEqual([...new Set(kube.tokens)], [undefined], 'without TLS no token is shown');
  match(lines.join(''), /has no TLS, so no credentials are sent/);
});

test('a request goes to an engine in a pod, and one under way ends after its pod is being deleted', async (t) => {
  const engine = await startEngine(t);
  const { hostname, port } = new URL(engine.url);
  const { kube, router, untilFleet } = await startDiscoveryScene(t, { serviceDiscoveryPort: Number(port) });
  kube.set('a', { ip: hostname });
  await untilFleet(engine.url);
  const client = await connectClient(t, router.url);
  client.write(request('POST', '/generate', '{}'));
  const asked = await engine.next();
  kube.set('a', { isDeleting: true });
  await untilFleet();
  equal((await send(t, router.url, request('POST', '/generate', '{}'))).status, 503, 'no new work');
  asked.answer('{"text":"done"}');
  equal((await client.answer('POST')).text, '{"text":"done"}');
  kube.delete('a');
});

test('a pod that is not ready any more stays: health checks decide', async (t) => {
  const { kube, router, untilFleet } = await startDiscoveryScene(t);
  kube.set('a', { ip: '127.9.0.1' });
  await untilFleet('127.9.0.1');
  const [worker] = router.fleet.workers;
  kube.set('a', { isReady: false });
  kube.set('b', { ip: '127.9.0.2' });
  await untilFleet('127.9.0.1', '127.9.0.2');
  equal(router.fleet.workers[0], worker);
});

test('labels that come and go, a pod that ended, a new address', async (t) => {
  const { kube, untilFleet } = await startDiscoveryScene(t, { selector: ['app=engine', 'tier=gpu'] });
  const labels = { app: 'engine', tier: 'gpu' };
  kube.set('a', { ip: '127.9.0.1', labels: { app: 'engine' } });
  kube.set('b', { ip: '127.9.0.2', labels });
  await untilFleet('127.9.0.2');
  kube.set('a', { labels });
  await untilFleet('127.9.0.1', '127.9.0.2');
  kube.set('b', { labels: { app: 'engine' } });
  await untilFleet('127.9.0.1');
  kube.set('a', { ip: '127.9.0.9' });
  await untilFleet('127.9.0.9');
  kube.set('a', { phase: 'Failed' });
  await untilFleet();
});

test('another pod of the same name and address is another worker', async (t) => {
  const { kube, router, untilFleet } = await startDiscoveryScene(t);
  kube.set('engine-0', { ip: '127.9.0.1' });
  await untilFleet('127.9.0.1');
  const [first] = router.fleet.workers;
  kube.delete('engine-0');
  kube.set('engine-0', { ip: '127.9.0.1', uid: 'another' });
  await until(
    'the worker is another one',
    () => router.fleet.workers.length === 1 && router.fleet.workers[0] !== first,
  );
  // Also when both are told of at once.
  const second = router.fleet.workers[0]!;
  kube.stop();
  kube.delete('engine-0');
  kube.set('engine-0', { ip: '127.9.0.1', uid: 'a third one' });
  kube.forget();
  await kube.start();
  await until('the worker is the third', () => router.fleet.workers.length === 1 && router.fleet.workers[0] !== second);
  notEqual(router.fleet.workers[0]!.slot, -1);
});

test('the annotation of the bootstrap port is shown, and followed', async (t) => {
  const { kube, router, untilFleet } = await startDiscoveryScene(t, { bootstrapPortAnnotation: 'example.com/port' });
  kube.set('a', { ip: '127.9.0.1', annotations: { 'example.com/port': '8998' } });
  await untilFleet('127.9.0.1');
  const [worker] = router.fleet.workers;
  equal(worker!.labels['bootstrap_port'], '8998');
  kube.set('a', { annotations: { 'example.com/port': '9001' } });
  await until('the label follows', () => worker!.labels['bootstrap_port'] === '9001');
  equal(router.fleet.workers[0], worker, 'the same worker');
});

test('workers of --worker-urls and of the API are left alone', async (t) => {
  const given = urlOf('127.9.0.1');
  const { kube, router, lines, untilFleet, metric } = await startDiscoveryScene(t, { workerUrls: [given] });
  await send(t, router.url, request('POST', '/workers', JSON.stringify({ url: urlOf('127.9.0.2') })));
  const [one, two] = router.fleet.workers;
  for (const n of [1, 2, 3]) kube.set(`p${n}`, { ip: `127.9.0.${n}` });
  await untilFleet('127.9.0.1', '127.9.0.2', '127.9.0.3');
  equal(await metric('turnout_discovered_workers'), 1);
  match(lines.join(''), /pod p1 is at http:\/\/127\.9\.0\.1:18000, the URL of an existing worker/);
  for (const n of [1, 2, 3]) kube.delete(`p${n}`);
  await untilFleet('127.9.0.1', '127.9.0.2');
  deepEqual(router.fleet.workers, [one, two]);
});

test('a worker that was removed by hand stays away until its pod is another one', async (t) => {
  const { kube, router, untilFleet } = await startDiscoveryScene(t);
  kube.set('a', { ip: '127.9.0.1' });
  await untilFleet('127.9.0.1');
  await send(t, router.url, request('DELETE', `/workers/${router.fleet.workers[0]!.id}`));
  kube.set('a', { annotations: { touched: 'yes' } });
  kube.set('b', { ip: '127.9.0.2' });
  await untilFleet('127.9.0.2');
  kube.delete('a');
  kube.set('a', { ip: '127.9.0.1', uid: 'another' });
  await untilFleet('127.9.0.1', '127.9.0.2');
});

test('a pod at an address that is not allowed is no worker: --worker-allow, metadata addresses', async (t) => {
  const { kube, lines, untilFleet } = await startDiscoveryScene(t, { workerAllow: ['127.9.0.0/24'] });
  kube.set('a', { ip: '127.8.0.1' });
  kube.set('b', { ip: '169.254.169.254' });
  kube.set('c', { ip: '127.9.0.1' });
  await untilFleet('127.9.0.1');
  match(lines.join(''), /pod a is not added as a worker: .*--worker-allow/);
  match(lines.join(''), /pod b is not added as a worker/);
});

test('IPv6 addresses; all namespaces', async (t) => {
  const { kube, untilFleet } = await startDiscoveryScene(t, { serviceDiscoveryNamespace: '*' });
  kube.set('a', { ip: 'fd00::7' });
  kube.set('b', { ip: 'fd00::8', namespace: 'staging' });
  await untilFleet(`http://[fd00::7]:${PORT}`, `http://[fd00::8]:${PORT}`);
  match(kube.asked[0]!, /^\/api\/v1\/pods\?labelSelector=app%3Dengine&/);
});
