import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { Fleet } from '../fleet.ts';
import type { Pod } from './pod.ts';
import { PodWorkers } from './pod-workers.ts';

const OPTIONS = { ports: [8000], bootstrapPortAnnotation: 'port', roles: null };
const makeFleet = (servesPairs = false): Fleet =>
  new Fleet({ pool: { connectTimeoutMs: 1_000, idleTimeoutMs: 1_000 }, tls: null, servesPairs });

/** How a pod is at a moment; few addresses, so that pods follow each other on one. */
interface Moment {
  readonly uid: string;
  readonly ip: string;
  readonly state: 'ready' | 'unready' | 'deleting' | 'gone';
}

const moments = fc.array(
  fc.record({
    uid: fc.constantFrom('a', 'b', 'c', 'd'),
    ip: fc.constantFrom('10.0.0.1', '10.0.0.2', '10.0.0.3'),
    state: fc.constantFrom('ready', 'ready', 'unready', 'deleting', 'gone'),
  }),
  { maxLength: 40 },
) as fc.Arbitrary<Moment[]>;

const podOf = ({ uid, ip, state }: Moment): Pod => ({
  metadata: { uid, name: uid, ...(state === 'deleting' ? { deletionTimestamp: 'now' } : {}) },
  status: { podIP: ip, conditions: [{ type: 'Ready', status: state === 'ready' ? 'True' : 'False' }] },
});

/** Where each pod serves after all that: the plain words of the rules. */
function expected(history: readonly Moment[]): Map<string, string> {
  const at = new Map<string, string>();
  for (const { uid, ip, state } of history) {
    if (state === 'ready') at.set(uid, ip);
    else if (state !== 'unready' || at.get(uid) !== ip) at.delete(uid);
  }
  return at;
}

test('the fleet is the result of the events, in one batch, in many, or from a list', () => {
  fc.assert(
    fc.property(moments, fc.integer({ min: 1, max: 7 }), (history, batch) => {
      const fleet = makeFleet();
      const foreign = fleet.add('http://10.0.0.1:9000');
      const podWorkers = new PodWorkers(fleet, OPTIONS, () => {});
      for (let at = 0; at < history.length; at += batch) {
        const part = history.slice(at, at + batch);
        podWorkers.apply(part.map((moment) => ({ object: podOf(moment), isGone: moment.state === 'gone' })));
      }
      const at = expected(history);
      const urls = [...new Set(at.values())].map((ip) => `http://${ip}:8000`);
      const found = fleet.workers.filter((worker) => worker !== foreign);
      deepEqual(found.map(({ url }) => url).toSorted(), urls.toSorted());
      equal(podWorkers.size, urls.length);
      // Each is named after a pod that is there now.
      for (const { url, labels } of found) equal(`http://${at.get(labels['pod']!)}:8000`, url);

      // A list of the same changes nothing: the same workers.
      const before = [...fleet.workers];
      podWorkers.replace([...at].map(([uid, ip]) => podOf({ uid, ip, state: 'ready' })));
      deepEqual(fleet.workers, before);
      podWorkers.replace([]);
      deepEqual(fleet.workers, [foreign]);
    }),
  );
});

test('two pods at one address: one worker, and the other one has it when the first is gone', () => {
  const fleet = makeFleet();
  const podWorkers = new PodWorkers(fleet, OPTIONS, () => {});
  const pods = ['a', 'b'].map((uid) => podOf({ uid, ip: '10.0.0.1', state: 'ready' }));
  podWorkers.replace(pods);
  const [first] = fleet.workers;
  equal(first!.labels['pod'], 'a');
  podWorkers.apply([{ object: pods[0]!, isGone: true }]);
  equal(fleet.workers.length, 1);
  ok(fleet.workers[0] !== first);
  equal(fleet.workers[0]!.labels['pod'], 'b');
});

const roles = { prefill: ['role=p'], decode: ['role=d'] };
const changes = fc.array(
  fc.record({
    uid: fc.constantFrom('a', 'b', 'c'),
    role: fc.constantFrom('p', 'd', 'none'),
    port: fc.option(fc.constantFrom('8998', '9001'), { nil: undefined }),
    isReady: fc.boolean(),
  }),
  { maxLength: 30 },
);

test('with roles, after any history: each pod is of the role that its labels say, at the port that its annotation says', () => {
  fc.assert(
    fc.property(changes, fc.integer({ min: 1, max: 5 }), (history, batch) => {
      const fleet = makeFleet(true);
      const podWorkers = new PodWorkers(fleet, { ...OPTIONS, roles }, () => {});
      const expected = new Map<string, { role: string; bootstrapPort: number | null }>();
      for (const { uid, role, port, isReady } of history) {
        const name = { p: 'prefill', d: 'decode', none: '' }[role];
        if (name === '' || (!isReady && expected.get(uid)?.role !== name)) expected.delete(uid);
        else expected.set(uid, { role: name, bootstrapPort: name === 'prefill' && port ? Number(port) : null });
      }
      for (let at = 0; at < history.length; at += batch) {
        const part = history.slice(at, at + batch).map(({ uid, role, port, isReady }) => ({
          metadata: { uid, name: uid, labels: { role }, annotations: port === undefined ? {} : { port } },
          status: {
            podIP: `10.0.0.${uid.charCodeAt(0)}`,
            conditions: [{ type: 'Ready', status: isReady ? 'True' : 'False' }],
          },
        }));
        podWorkers.apply(part.map((object) => ({ object, isGone: false })));
      }
      const found = fleet.workers.map(({ labels, role, bootstrapPort }) => [labels['pod']!, { role, bootstrapPort }]);
      deepEqual(Object.fromEntries(found), Object.fromEntries(expected));
      equal(fleet.eligible.length, expected.size);
      equal(podWorkers.size, expected.size);
    }),
  );
});

test('labels that were set by hand stay; labels of the pod follow it', () => {
  const fleet = makeFleet();
  const podWorkers = new PodWorkers(fleet, OPTIONS, () => {});
  const tell = (nodeName: string | undefined, annotations: Readonly<Record<string, string>> = {}): void => {
    const pod = podOf({ uid: 'a', ip: '10.0.0.1', state: 'ready' });
    const spec = nodeName === undefined ? {} : { spec: { nodeName } };
    podWorkers.replace([{ ...pod, ...spec, metadata: { ...pod.metadata, annotations } }]);
  };
  tell('n1');
  const [worker] = fleet.workers;
  worker!.labels = { ...worker!.labels, group: 'canary', pod: 'mine' };
  tell('n1');
  deepEqual(worker!.labels, { pod: 'mine', node: 'n1', group: 'canary' });
  tell('n2', { port: '9001' });
  deepEqual(worker!.labels, { pod: 'mine', node: 'n2', group: 'canary', bootstrap_port: '9001' });
  tell(undefined);
  deepEqual(worker!.labels, { pod: 'mine', group: 'canary' });
});

test('a bootstrap port that was set by hand stays until the pod tells another one', () => {
  const fleet = makeFleet(true);
  const podWorkers = new PodWorkers(fleet, { ...OPTIONS, roles }, () => {});
  const tell = (annotations: Readonly<Record<string, string>>): void => {
    const pod = podOf({ uid: 'a', ip: '10.0.0.1', state: 'ready' });
    podWorkers.apply([
      { object: { ...pod, metadata: { ...pod.metadata, labels: { role: 'p' }, annotations } }, isGone: false },
    ]);
  };
  tell({});
  const [worker] = fleet.workers;
  worker!.bootstrapPort = 7000;
  tell({ touched: 'yes' });
  equal(worker!.bootstrapPort, 7000);
  tell({ port: '9001' });
  equal(worker!.bootstrapPort, 9001);
  tell({});
  equal(worker!.bootstrapPort, null);
  deepEqual(fleet.workers, [worker]);
});

test('a pod with both roles is reported once, and again after it was correct', () => {
  const told: string[] = [];
  const podWorkers = new PodWorkers(makeFleet(true), { ...OPTIONS, roles: { ...roles, decode: ['kind=d'] } }, (line) =>
    told.push(line),
  );
  const tell = (labels: Readonly<Record<string, string>>): void => {
    const pod = podOf({ uid: 'a', ip: '10.0.0.1', state: 'ready' });
    podWorkers.apply([{ object: { ...pod, metadata: { ...pod.metadata, labels } }, isGone: false }]);
  };
  const both = { role: 'p', kind: 'd' };
  tell({ role: 'p' });
  equal(podWorkers.size, 1);
  tell(both);
  tell({ ...both, more: 'x' });
  equal(podWorkers.size, 0, 'which of both it is nobody knows any more');
  equal(told.length, 1);
  match(told[0]!, /^pod a is not added as a worker: it has the labels of --prefill-selector and of --decode-selector/);
  tell({ kind: 'd' });
  tell(both);
  equal(told.length, 2);
});

test('several ports: each is a worker, and those that a pod or the options no longer have leave', () => {
  const fleet = makeFleet();
  const podWorkers = new PodWorkers(fleet, { ...OPTIONS, ports: [8000, 8001] }, () => {});
  const pod = podOf({ uid: 'a', ip: '10.0.0.1', state: 'ready' });
  const active = (ports: string): Pod => ({
    ...pod,
    metadata: { ...pod.metadata, annotations: { 'inference.networking.k8s.io/active-ports': ports } },
  });
  const urls = (): string[] => fleet.workers.map(({ url }) => url.slice('http://10.0.0.1:'.length));
  podWorkers.replace([pod]);
  deepEqual(urls(), ['8000', '8001']);
  equal(podWorkers.size, 2);
  const [first, second] = fleet.workers;
  podWorkers.apply([{ object: active('8001'), isGone: false }]);
  deepEqual(fleet.workers, [second]);
  podWorkers.setOptions({ ...OPTIONS, ports: [8000, 8001, 8002] });
  podWorkers.replace([pod]);
  deepEqual(urls(), ['8001', '8000', '8002']);
  ok(!fleet.workers.includes(first!), 'a port that was away is another engine');
  const unready = podOf({ uid: 'a', ip: '10.0.0.1', state: 'unready' });
  podWorkers.setOptions({ ...OPTIONS, ports: [8001, 8003] });
  podWorkers.replace([unready]);
  deepEqual(fleet.workers, [second], 'a new port of a pod that is not ready is not added');
});
