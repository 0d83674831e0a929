import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { Fleet } from '../fleet.ts';
import type { NamedWorker } from '../../config/named-workers.ts';
import { changeWorkers } from '../change-workers.ts';
import type { Role, Worker } from '../worker.ts';
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

test('a ready pod is a new worker, though an earlier pod that is not ready is listed with its address', () => {
  const fleet = makeFleet();
  const podWorkers = new PodWorkers(fleet, OPTIONS, () => {});
  const tell = (uid: string, state: Moment['state']): void =>
    podWorkers.apply([{ object: podOf({ uid, ip: '10.0.0.1', state }), isGone: false }]);
  tell('a', 'ready');
  const [first] = fleet.workers;
  tell('a', 'unready');
  deepEqual(fleet.workers, [first], 'an engine that is busy fails its probe');
  tell('b', 'ready');
  const [second] = fleet.workers;
  ok(second !== first);
  deepEqual([fleet.workers.length, second!.labels['pod']], [1, 'b']);
  tell('a', 'ready');
  deepEqual(fleet.workers, [second]);
});

const named = (url: string, role: Role = 'regular'): NamedWorker => ({ url, role, bootstrapPort: null, flag: 'test' });

test('a worker that the configuration names too leaves when neither it nor a pod is left', () => {
  const fleet = makeFleet();
  const podWorkers = new PodWorkers(fleet, OPTIONS, () => {});
  const pod = podOf({ uid: 'a', ip: '10.0.0.1', state: 'ready' });
  const list = [named('http://10.0.0.1:8000')];
  const reload = (before: readonly NamedWorker[], wanted: readonly NamedWorker[]): void =>
    changeWorkers(fleet, before, wanted)();
  const tell = (isGone: boolean): void => podWorkers.apply([{ object: pod, isGone }]);
  tell(false);
  const [worker] = fleet.workers;
  reload([], list);
  equal(podWorkers.size, 0);
  tell(true);
  deepEqual(fleet.workers, [worker], 'the configuration names it');
  tell(false);
  equal(podWorkers.size, 0);
  reload(list, []);
  deepEqual(fleet.workers, [worker], 'its pod is there');
  equal(podWorkers.size, 1);
  tell(true);
  deepEqual(fleet.workers, []);
  // The order in which a fleet moves from the list to discovery.
  reload([], list);
  tell(false);
  reload(list, []);
  equal(fleet.workers.length, 1);
  tell(true);
  deepEqual(fleet.workers, []);
});

test('a worker that a user removed and added again is not the pod’s', () => {
  const fleet = makeFleet();
  const podWorkers = new PodWorkers(fleet, OPTIONS, () => {});
  const pod = podOf({ uid: 'a', ip: '10.0.0.1', state: 'ready' });
  podWorkers.replace([pod]);
  fleet.remove(fleet.workers[0]!);
  podWorkers.replace([pod]);
  deepEqual(fleet.workers, [], 'it stays removed');
  const again = fleet.add('http://10.0.0.1:8000', { labels: { mine: 'x' } }) as Worker;
  podWorkers.apply([{ object: { ...pod, spec: { nodeName: 'n2' } }, isGone: false }]);
  deepEqual(again.labels, { mine: 'x' });
  equal(podWorkers.size, 0);
  podWorkers.apply([{ object: pod, isGone: true }]);
  deepEqual(fleet.workers, [again]);
});

test('the ranks of a pod’s engine are its workers', () => {
  const fleet = new Fleet({ pool: { connectTimeoutMs: 1_000, idleTimeoutMs: 1_000 }, tls: null, asksForRanks: true });
  const podWorkers = new PodWorkers(fleet, OPTIONS, () => {});
  const pod = podOf({ uid: 'a', ip: '10.0.0.1', state: 'ready' });
  podWorkers.replace([pod]);
  fleet.setRanks(fleet.workers[0]!, 2);
  equal(podWorkers.size, 2);
  podWorkers.replace([{ ...pod, spec: { nodeName: 'n2' } }]);
  deepEqual(
    fleet.workers.map(({ labels }) => labels['node']),
    ['n2', 'n2'],
  );
  changeWorkers(fleet, [], [named('http://10.0.0.1:8000')])();
  equal(podWorkers.size, 0);
  podWorkers.replace([]);
  equal(fleet.workers.length, 2);
});

const roles = { prefill: ['role=p'], decode: ['role=d'] };

test('a pod whose URL is that of a worker with another role is added when that worker has left', async () => {
  const fleet = makeFleet(true);
  const told: string[] = [];
  const podWorkers = new PodWorkers(fleet, { ...OPTIONS, roles }, (line) => told.push(line));
  const other = fleet.add('http://10.0.0.1:8000', { role: 'prefill' }) as Worker;
  const pod = podOf({ uid: 'a', ip: '10.0.0.1', state: 'ready' });
  const decode = { ...pod, metadata: { ...pod.metadata, labels: { role: 'd' } } };
  podWorkers.replace([decode]);
  podWorkers.replace([decode]);
  deepEqual(fleet.workers, [other]);
  equal(told.length, 1);
  match(told[0]!, /^pod a is not added as a worker: That engine is in the fleet as prefill/);
  fleet.remove(other);
  await Promise.resolve();
  deepEqual(
    fleet.workers.map(({ role, labels }) => [role, labels['pod']]),
    [['decode', 'a']],
  );
});

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
