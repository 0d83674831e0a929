import { deepEqual, equal, match, notEqual, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { PairWorld } from '../harness/pairs.ts';
import { until } from '../harness/within.ts';
import { startDiscoveryScene } from './scene.ts';

const SELECTORS = { prefillSelector: ['role=prefill', 'env=prod'], decodeSelector: ['role=decode', 'env=prod'] };
const prefill = { role: 'prefill', env: 'prod' };
const decode = { role: 'decode', env: 'prod' };
const port = (text: string) => ({ 'sglang.ai/bootstrap-port': text });
const ask = (t: TestContext, url: string) => send(t, url, request('POST', '/generate', '{"text":"hello"}'));

/** Prefill and decode engines that listen at one port, as pods do, and a router that looks for them. */
async function scene(t: TestContext) {
  const world = new PairWorld(t);
  const first = await world.add('prefill', { host: '127.9.1.1' });
  const at = Number(new URL(first.engine.url).port);
  await world.add('prefill', { host: '127.9.1.2', port: at });
  await world.add('decode', { host: '127.9.2.1', port: at });
  await world.add('decode', { host: '127.9.2.2', port: at });
  const options = { pdDisaggregation: true, policy: 'round_robin', serviceDiscoveryPort: at, ...SELECTORS };
  const found = await startDiscoveryScene(t, options);
  const roles = (): string =>
    found.router.fleet.workers
      .map(({ labels, role }) => `${labels['pod']} ${role}`)
      .toSorted()
      .join(', ');
  const untilRoles = (wanted: string): Promise<void> =>
    until(`the fleet is ${wanted}`, () => roles() === wanted).catch((error: unknown) => {
      throw new Error(`${(error as Error).message}: it is ${roles()}`, { cause: error });
    });
  t.after(() => {
    for (const { wrong } of [...world.prefill, ...world.decode]) deepEqual(wrong, []);
  });
  return { ...found, world, untilRoles };
}

test('pods are halves of pairs by their labels, and prefill engines have the port of their annotation', async (t) => {
  const { kube, world, router, untilRoles } = await scene(t);
  kube.set('p1', { ip: '127.9.1.1', labels: prefill, annotations: port('8998') });
  kube.set('d1', { ip: '127.9.2.1', labels: decode, annotations: port('1') });
  kube.set('other', { ip: '127.9.3.1', labels: { role: 'prefill', env: 'test' } });
  await untilRoles('d1 decode, p1 prefill');
  match(kube.asked[0]!, /labelSelector=role%20in%20\(prefill%2Cdecode\)%2Cenv%3Dprod&/);
  equal((await ask(t, router.url)).text, '{"text":"decode0","meta_info":{}}');
  for (const half of [world.prefill[0]!, world.decode[0]!]) {
    deepEqual([half.seen[0]!.hosts, half.seen[0]!.ports], [['127.9.1.1'], [8998]]);
  }

  const worker = router.fleet.get(world.urls.prefill[0]!);
  kube.set('p1', { annotations: port('9001') });
  await until('the port follows', () => worker!.bootstrapPort === 9001);
  await ask(t, router.url);
  deepEqual(world.decode[0]!.seen.at(-1)!.ports, [9001]);
  kube.set('p1', { annotations: port('none') });
  await until('the port is gone', () => worker!.bootstrapPort === null);
  await ask(t, router.url);
  deepEqual(world.decode[0]!.seen.at(-1)!.ports, [null]);
  equal(router.fleet.get(world.urls.prefill[0]!), worker, 'all the time the same worker');

  kube.set('p2', { ip: '127.9.1.2', labels: prefill });
  kube.set('d2', { ip: '127.9.2.2', labels: decode });
  await untilRoles('d1 decode, d2 decode, p1 prefill, p2 prefill');
  for (let i = 0; i < 4; i++) equal((await ask(t, router.url)).status, 200);
  ok(world.prefill[1]!.seen.length > 0 && world.decode[1]!.seen.length > 0);
  kube.delete('p1');
  kube.set('d2', { isDeleting: true });
  await untilRoles('d1 decode, p2 prefill');
});

test('a pod that changes its role is another worker', async (t) => {
  const { kube, router, lines, untilRoles } = await scene(t);
  kube.set('a', { ip: '127.9.1.1', labels: prefill, annotations: port('8998') });
  await untilRoles('a prefill');
  const [first] = router.fleet.workers;
  const seen: string[] = [];
  router.fleet.onEvent((event, { role }) => seen.push(`${event} ${role}`));
  kube.set('a', { labels: decode });
  await untilRoles('a decode');
  deepEqual(
    seen.filter((event) => !event.startsWith('changed')),
    ['removed prefill', 'drained prefill', 'added decode'],
  );
  const [second] = router.fleet.workers;
  notEqual(second!.id, first!.id);
  equal(second!.bootstrapPort, null);
  kube.set('a', { labels: { env: 'prod' } });
  await untilRoles('');
  kube.set('a', { labels: prefill });
  await untilRoles('a prefill');
  equal(router.fleet.workers[0]!.bootstrapPort, 8998);
  equal(lines.filter((line) => line.includes('no worker')).length, 0);
});

test('a change of role that was missed is made up for, and engines named by hand stay', async (t) => {
  const named = 'http://127.9.2.9:1';
  const options = { pdDisaggregation: true, policy: 'round_robin', decode: [named], ...SELECTORS };
  const { kube, router, untilFleet } = await startDiscoveryScene(t, options);
  kube.set('a', { ip: '127.9.1.1', labels: prefill });
  await untilFleet('127.9.1.1', named);
  await until('it watches', () => kube.watcherCount === 1);
  kube.stop();
  kube.set('a', { labels: decode });
  kube.forget();
  await kube.start();
  await until('a decodes', () => router.fleet.workers.every(({ role }) => role === 'decode'));
  await untilFleet('127.9.1.1', named);
  kube.delete('a');
  await untilFleet(named);
});
