import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { stoppedClock } from '../harness/fake-time.ts';
import { startFakeKube } from '../harness/kube-api.ts';
import { until } from '../harness/within.ts';
import { startGateway } from '../picker/gateway.ts';
import { type DiscoveryScene, startDiscoveryScene } from './scene.ts';

const spec = (labels: object, ...ports: number[]) => ({
  selector: { matchLabels: labels },
  targetPorts: ports.map((number) => ({ number })),
  endpointPickerRef: { name: 'turnout', port: { number: 9002 } },
});
const ENGINES = { app: 'engine' };

const start = (t: Parameters<typeof startDiscoveryScene>[0], prepare: Parameters<typeof startDiscoveryScene>[2]) =>
  startDiscoveryScene(t, { serviceDiscovery: false, selector: [], poolName: 'pool' }, prepare);
const urls = (...endpoints: string[]): string[] => endpoints.map((endpoint) => `http://${endpoint}`);
const known = ({ router }: DiscoveryScene): string[] => router.fleet.workers.map(({ url }) => url).toSorted();

test('pods of the pool are workers, one for each target port', async (t) => {
  const scene = await start(t, (kube) => {
    kube.setPool('other', spec({ app: 'database' }, 5432));
    kube.setPool('pool', spec(ENGINES, 8000, 8001));
    kube.set('a', { ip: '127.9.0.1' });
    kube.set('b', { ip: '127.9.0.2', labels: { app: 'database' } });
    kube.set('c', { ip: '127.9.0.3', annotations: { 'inference.networking.k8s.io/active-ports': '8001' } });
  });
  const { kube, untilFleet, metric } = scene;
  await untilFleet(...urls('127.9.0.1:8000', '127.9.0.1:8001', '127.9.0.3:8001'));
  equal(await metric('turnout_discovered_workers'), 3);
  equal(await metric('turnout_discovery_connected'), 1);
  deepEqual(
    kube.asked.filter((path) => path.includes('inferencepools') && !path.includes('watch')),
    ['/apis/inference.networking.k8s.io/v1/namespaces/rl/inferencepools?fieldSelector=metadata.name%3Dpool&limit=50'],
  );
  kube.set('d', { ip: '127.9.0.4' });
  kube.set('a', { isDeleting: true });
  await untilFleet(...urls('127.9.0.3:8001', '127.9.0.4:8000', '127.9.0.4:8001'));
});

test('a pool whose selector or ports change: pods that belong to it before and after keep their workers', async (t) => {
  const { kube, router, untilFleet } = await start(t, (before) => {
    before.setPool('pool', spec(ENGINES, 8000));
    before.set('a', { ip: '127.9.0.1', labels: { app: 'engine', tier: 'gpu' } });
    before.set('b', { ip: '127.9.0.2' });
    before.set('c', { ip: '127.9.0.3', labels: { app: 'spare', tier: 'gpu' } });
  });
  await untilFleet(...urls('127.9.0.1:8000', '127.9.0.2:8000'));
  const kept = router.fleet.get('http://127.9.0.1:8000');
  kube.setPool('pool', spec({ tier: 'gpu' }, 8000));
  await untilFleet(...urls('127.9.0.1:8000', '127.9.0.3:8000'));
  equal(router.fleet.get('http://127.9.0.1:8000'), kept);
  kube.setPool('pool', spec({ tier: 'gpu' }, 8000, 9000));
  await untilFleet(...urls('127.9.0.1:8000', '127.9.0.1:9000', '127.9.0.3:8000', '127.9.0.3:9000'));
  equal(router.fleet.get('http://127.9.0.1:8000'), kept);
  // The watch of the old selector has ended.
  kube.set('b', { labels: { app: 'engine', tier: 'cpu' } });
  kube.set('e', { ip: '127.9.0.5', labels: { tier: 'gpu' } });
  await until('e joins', () => router.fleet.get('http://127.9.0.5:9000') !== undefined);
  equal(router.fleet.get('http://127.9.0.2:8000'), undefined);
});

test('a change of a pool that changes neither pods nor ports starts no new watch', async (t) => {
  const scene = await start(t, (kube) => {
    kube.setPool('pool', spec(ENGINES, 8000));
    kube.set('a', { ip: '127.9.0.1' });
  });
  const { kube, untilFleet } = scene;
  await untilFleet(...urls('127.9.0.1:8000'));
  await until('both are watched', () => kube.watcherCount === 2);
  const { watches } = kube;
  kube.setPool('pool', { ...spec(ENGINES, 8000), appProtocol: 'kubernetes.io/h2c' });
  await until('it is logged', () => scene.lines.join('').includes('appProtocol is kubernetes.io/h2c'));
  equal(kube.watches, watches);
});

test('without the pool there are no workers; when it is created they join, when it is deleted they leave', async (t) => {
  const scene = await start(t, (kube) => kube.set('a', { ip: '127.9.0.1' }));
  const { kube, lines, untilFleet } = scene;
  await until('it is logged', () => lines.join('').includes('InferencePool pool: it does not exist'));
  deepEqual(known(scene), []);
  kube.setPool('pool', spec(ENGINES, 8000));
  await untilFleet(...urls('127.9.0.1:8000'));
  kube.setPool('pool', null);
  await untilFleet();
  equal(lines.filter((line) => line.includes('it does not exist')).length, 2);
  kube.setPool('pool', spec(ENGINES, 8001));
  await untilFleet(...urls('127.9.0.1:8001'));
});

test('a pool without labels or ports leaves the workers as they are', async (t) => {
  const scene = await start(t, (kube) => {
    kube.setPool('pool', spec(ENGINES, 8000));
    kube.set('a', { ip: '127.9.0.1' });
  });
  await scene.untilFleet(...urls('127.9.0.1:8000'));
  scene.kube.setPool('pool', spec({}, 8000));
  await until('it is logged', () => scene.lines.join('').includes('spec.selector.matchLabels is empty'));
  scene.kube.setPool('pool', spec(ENGINES));
  await until('it is logged', () => scene.lines.join('').includes('spec.targetPorts is empty'));
  deepEqual(known(scene), urls('127.9.0.1:8000'));
});

test('the API server goes and comes back: the last known workers stay, and changes meanwhile are found', async (t) => {
  const scene = await start(t, (kube) => {
    kube.setPool('pool', spec(ENGINES, 8000));
    kube.set('a', { ip: '127.9.0.1' });
  });
  const { kube, untilFleet, metric } = scene;
  await untilFleet(...urls('127.9.0.1:8000'));
  await until('it is connected', async () => (await metric('turnout_discovery_connected')) === 1);
  kube.stop();
  await until('it is noticed', async () => (await metric('turnout_discovery_connected')) === 0);
  deepEqual(known(scene), urls('127.9.0.1:8000'));
  kube.setPool('pool', spec(ENGINES, 8002));
  await kube.start();
  await untilFleet(...urls('127.9.0.1:8002'));
});

test('a picker serves once the pods of the pool are listed, and while it leads', async (t) => {
  const kube = await startFakeKube(t);
  const options = { poolName: 'pool', leaderElection: 'auto' };
  const first = await startGateway(t, options);
  const SERVICES = ['', 'readiness', 'envoy.service.ext_proc.v3.ExternalProcessor'];
  const all = async (gateway: typeof first, wanted: number): Promise<boolean> => {
    const states = await Promise.all(SERVICES.map((service) => gateway.healthOf(service)));
    return states.every((state) => state === wanted);
  };
  await until('it leads', () => first.router.picker!.leader!.isLeading);
  ok(await all(first, 2), 'the pool is not there yet');
  equal(await first.healthOf('liveness'), 1);
  kube.setPool('pool', spec(ENGINES, 8000));
  kube.set('a', { ip: '127.9.0.1' });
  await until('it serves', () => all(first, 1));
  const second = await startGateway(t, options);
  await until('the second knows the pool', () => second.router.fleet.workers.length === 1);
  ok(await all(second, 2), 'another replica leads');
  equal(await second.healthOf('liveness'), 1);
  match(kube.leases.holderOf('pool-picker'), /_/);
  const { picker } = first.router;
  const clock = stoppedClock(t);
  const closed = first.router.close(60_000);
  await until('the second takes over', () => all(second, 1));
  await until('the first knows it', () => !picker!.leader!.isLeading);
  // Gateways have three seconds to notice.
  clock.pass(2_900);
  ok(await all(first, 1), 'it serves until gateways know the second one');
  ok(!picker!.isHandedOver);
  clock.pass(200);
  ok(await all(first, 2), 'it does not serve any more, and says so');
  clock.pass(3_000);
  await closed;
});
