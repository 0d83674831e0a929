import { equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { seededRandom } from '../../src/kit/rng.ts';
import { FakeKube, useKubeconfig } from '../harness/kube-api.ts';
import { until } from '../harness/within.ts';
import { startDiscovering, startDiscoveryScene } from './scene.ts';

const three = ['127.9.0.1', '127.9.0.2', '127.9.0.3'];

test('the API server is away: the last known fleet stays, and what happened meanwhile is made up for', async (t) => {
  const { kube, router, lines, untilFleet, metric } = await startDiscoveryScene(t, {}, (before) => {
    for (const [n, ip] of three.entries()) before.set(`p${n}`, { ip });
  });
  await untilFleet(...three);
  const kept = router.fleet.workers[1];
  kube.stop();
  await until('it is noticed', async () => (await metric('turnout_discovery_connected')) === 0);
  await until('several tries fail', () => lines.join('').includes('ECONNREFUSED'));
  await untilFleet(...three);
  equal(await metric('turnout_discovered_workers'), 3);
  kube.delete('p0');
  kube.set('p3', { ip: '127.9.0.4' });
  await kube.start();
  await untilFleet('127.9.0.2', '127.9.0.3', '127.9.0.4');
  await until('it is connected again', async () => (await metric('turnout_discovery_connected')) === 1);
  equal(router.fleet.workers[0], kept, 'who stayed is the same worker');
  const lost = lines.filter(
    (line) => line.includes('disconnected from the API server') && line.includes('ECONNREFUSED'),
  );
  equal(lost.length, 1, 'a line an outage, not a line a try');
});

test('it is away from the start: the router serves, and finds its fleet later', async (t) => {
  const { kube, lines, untilFleet } = await startDiscoveryScene(t, {}, (before) => before.stop());
  await until('it is noticed', () => lines.join('').includes('ECONNREFUSED'));
  kube.set('a', { ip: '127.9.0.1' });
  await kube.start();
  await untilFleet('127.9.0.1');
});

test('a watch that ended goes on where it was; one that was cut begins with a list', async (t) => {
  const { kube, untilFleet } = await startDiscoveryScene(t);
  kube.set('a', { ip: '127.9.0.1' });
  await untilFleet('127.9.0.1');
  await until('it watches', () => kube.watcherCount === 1);
  kube.end();
  kube.set('b', { ip: '127.9.0.2' });
  await untilFleet('127.9.0.1', '127.9.0.2');
  equal(kube.lists, 1);
  kube.cut();
  kube.set('c', { ip: '127.9.0.3' });
  await untilFleet(...three);
  equal(kube.lists, 2);
});

test('watches that end as they begin are no connection', async (t) => {
  const { kube, untilFleet, lines } = await startDiscoveryScene(t);
  kube.set('a', { ip: '127.9.0.1' });
  await untilFleet('127.9.0.1');
  const ending = setInterval(() => kube.end(), 2);
  t.after(() => clearInterval(ending));
  await until('it is told', () => lines.join('').includes('watches end immediately'));
  ok(kube.watches < 20, `it waits in between: ${kube.watches} watches`);
  await untilFleet('127.9.0.1');
});

test('410: pods are listed again, and those that remain stay the same workers', async (t) => {
  const { kube, router, untilFleet, metric } = await startDiscoveryScene(t);
  for (const [n, ip] of three.entries()) kube.set(`p${n}`, { ip });
  await untilFleet(...three);
  const last = router.fleet.workers[2];
  await until('it watches', () => kube.watcherCount === 1);
  kube.end();
  // Before the next watch begins.
  kube.delete('p0');
  kube.delete('p1');
  kube.forget();
  await untilFleet('127.9.0.3');
  equal(router.fleet.workers[0], last);
  equal(kube.lists, 2);
  await until('it watches', () => kube.watcherCount === 1);
  equal(await metric('turnout_discovery_connected'), 1);
});

test('410 without end counts as no connection', async (t) => {
  const { kube, untilFleet, lines, metric } = await startDiscoveryScene(t);
  kube.set('a', { ip: '127.9.0.1' });
  await untilFleet('127.9.0.1');
  kube.forget(1_000);
  kube.cut();
  await until('it is told', () => lines.join('').includes('410: too old resource version'));
  await untilFleet('127.9.0.1');
  kube.forget();
  await until('it is connected', async () => (await metric('turnout_discovery_connected')) === 1);
});

test('410 on an open watch, and in the middle of a list', async (t) => {
  const { kube, untilFleet } = await startDiscoveryScene(t);
  await until('it watches', () => kube.watcherCount === 1);
  kube.expiredPages = 1;
  for (let n = 0; n < 120; n++) kube.pods.set(`quiet-${n}`, pod(n));
  const object = { kind: 'Status', code: 410, reason: 'Expired', message: 'too old resource version' };
  kube.say(`${JSON.stringify({ type: 'ERROR', object })}\n`);
  await untilFleet(...Array.from({ length: 120 }, (_, n) => `127.9.1.${n}`));
  equal(kube.lists, 3, 'one at the start, one broken off by 410, one whole');

  function pod(n: number) {
    const metadata = { name: `quiet-${n}`, namespace: 'rl', uid: `q${n}`, labels: { app: 'engine' }, annotations: {} };
    const conditions = [{ type: 'Ready', status: 'True' }];
    const status = { phase: 'Running', podIP: `127.9.1.${n}`, conditions };
    return { metadata: { ...metadata, resourceVersion: '1' }, spec: { nodeName: 'n' }, status };
  }
});

test('bookmarks move the place in the history without a change of the fleet', async (t) => {
  const { kube, untilFleet } = await startDiscoveryScene(t);
  kube.set('a', { ip: '127.9.0.1' });
  await untilFleet('127.9.0.1');
  await until('it watches', () => kube.watcherCount === 1);
  kube.set('other', { labels: { app: 'database' } });
  kube.bookmark();
  kube.forget();
  kube.set('b', { ip: '127.9.0.2' });
  await untilFleet('127.9.0.1', '127.9.0.2');
  kube.end();
  kube.set('c', { ip: '127.9.0.3' });
  await untilFleet(...three);
  equal(kube.lists, 1, 'the bookmark was newer than what was forgotten');
});

test('events that come in pieces, and many in one', async (t) => {
  const { kube, untilFleet } = await startDiscoveryScene(t);
  await until('it watches', () => kube.watcherCount === 1);
  const event = (n: number): string =>
    JSON.stringify({
      type: 'ADDED',
      object: {
        metadata: { name: `p${n}`, namespace: 'rl', uid: `u${n}`, resourceVersion: String(200 + n), note: 'ü' },
        status: { phase: 'Running', podIP: `127.9.0.${n}`, conditions: [{ type: 'Ready', status: 'True' }] },
      },
    });
  const text = Buffer.from(`${event(1)}\n\n${event(2)}\n${event(3)}\n`);
  const random = seededRandom(7);
  for (let at = 0; at < text.length;) {
    const size = 1 + Math.floor(random() * 90);
    kube.say(text.subarray(at, at + size));
    at += size;
    await new Promise((resolve) => setImmediate(resolve));
  }
  await untilFleet(...three);
});

test('what is no event, or no list, costs a new try and no worker', async (t) => {
  const { kube, untilFleet, lines } = await startDiscoveryScene(t);
  kube.set('a', { ip: '127.9.0.1' });
  await untilFleet('127.9.0.1');
  await until('it watches', () => kube.watcherCount === 1);
  kube.refusal = { status: 200, body: '<html>login</html>' };
  kube.say('this is not JSON\n');
  await until('it complains of the list', () => lines.join('').includes('<html>'));
  kube.refusal = { status: 200, body: '{"items":null}' };
  await until('it complains of that too', () => lines.join('').includes('not a list of pods'));
  await untilFleet('127.9.0.1');
  kube.refusal = null;
  kube.set('b', { ip: '127.9.0.2' });
  await untilFleet('127.9.0.1', '127.9.0.2');
});

test('a refusal keeps the fleet, and its words are in the log', async (t) => {
  const { kube, untilFleet, lines, metric } = await startDiscoveryScene(t);
  kube.set('a', { ip: '127.9.0.1' });
  await untilFleet('127.9.0.1');
  const message = 'pods is forbidden: User "x" cannot list resource "pods"';
  kube.refusal = { status: 403, body: JSON.stringify({ kind: 'Status', message, code: 403 }) };
  kube.end();
  await until('it is told', () => lines.join('').includes('403: pods is forbidden'));
  await untilFleet('127.9.0.1');
  equal(await metric('turnout_discovery_connected'), 0);
  kube.refusal = null;
  kube.set('b', { ip: '127.9.0.2' });
  await untilFleet('127.9.0.1', '127.9.0.2');
});

test('after a failure the credentials are read anew', async (t) => {
  const { kube, untilFleet } = await startDiscoveryScene(t);
  kube.set('a', { ip: '127.9.0.1' });
  await untilFleet('127.9.0.1');
  kube.stop();
  // Another API server, elsewhere, of the same cluster.
  const other = new FakeKube(null);
  await other.start();
  t.after(() => other.stop());
  other.set('b', { ip: '127.9.0.2' });
  useKubeconfig(t, other.url);
  await untilFleet('127.9.0.2');
});

test('closing ends the watch and what waits', async (t) => {
  const { kube, router } = await startDiscoveryScene(t);
  await until('it watches', () => kube.watcherCount === 1);
  await router.close();
  await until('the watch is gone', () => kube.watcherCount === 0);
});

test('nowhere to look: the router says so and does not start', async (t) => {
  useKubeconfig(t, 'http://127.0.0.1:1');
  process.env['KUBECONFIG'] = '/nowhere/config';
  const error = await startDiscovering(t).then(
    () => null,
    (reason: unknown) => reason as Error,
  );
  match(error!.message, /^--service-discovery: the kubeconfig \/nowhere\/config can't be read: ENOENT/);
  ok(error instanceof Error);
});
