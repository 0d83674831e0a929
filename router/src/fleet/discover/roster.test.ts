import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Fleet } from '../fleet.ts';
import type { Pod } from './pod.ts';
import { Roster } from './roster.ts';

const OPTIONS = { port: 8000, bootstrapPortAnnotation: 'port' };
const makeFleet = (): Fleet => new Fleet({ pool: { connectTimeoutMs: 1_000, idleTimeoutMs: 1_000 }, tls: null });

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

test('after any history the fleet is what it led to, told in one batch or in many, or listed', () => {
  fc.assert(
    fc.property(moments, fc.integer({ min: 1, max: 7 }), (history, batch) => {
      const fleet = makeFleet();
      const foreign = fleet.add('http://10.0.0.1:9000');
      const roster = new Roster(fleet, OPTIONS, () => {});
      for (let at = 0; at < history.length; at += batch) {
        const part = history.slice(at, at + batch);
        roster.apply(part.map((moment) => ({ pod: podOf(moment), isGone: moment.state === 'gone' })));
      }
      const at = expected(history);
      const urls = [...new Set(at.values())].map((ip) => `http://${ip}:8000`);
      const found = fleet.workers.filter((worker) => worker !== foreign);
      deepEqual(found.map(({ url }) => url).toSorted(), urls.toSorted());
      equal(roster.size, urls.length);
      // Each is named after a pod that is there now.
      for (const { url, labels } of found) equal(`http://${at.get(labels['pod']!)}:8000`, url);

      // A list of the same changes nothing: the same workers.
      const before = [...fleet.workers];
      roster.replace([...at].map(([uid, ip]) => podOf({ uid, ip, state: 'ready' })));
      deepEqual(fleet.workers, before);
      roster.replace([]);
      deepEqual(fleet.workers, [foreign]);
    }),
  );
});

test('two pods at one address: one worker, and the other one has it when the first is gone', () => {
  const fleet = makeFleet();
  const roster = new Roster(fleet, OPTIONS, () => {});
  const pods = ['a', 'b'].map((uid) => podOf({ uid, ip: '10.0.0.1', state: 'ready' }));
  roster.replace(pods);
  const [first] = fleet.workers;
  equal(first!.labels['pod'], 'a');
  roster.apply([{ pod: pods[0]!, isGone: true }]);
  equal(fleet.workers.length, 1);
  ok(fleet.workers[0] !== first);
  equal(fleet.workers[0]!.labels['pod'], 'b');
});
