import { deepEqual, equal, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { pino } from 'pino';
import { type FakeKube, startFakeKube } from '../../test/harness/kube-api.ts';
import { until } from '../../test/harness/within.ts';
import { findAccess } from '../fleet/discover/kube-access.ts';
import { Leader, type LeaderTimes } from './leader.ts';

const TIMES: LeaderTimes = { durationSecs: 3_600, deadlineMs: 60_000, renewMs: 50, retryMs: 50 };

async function startLeader(t: TestContext, identity: string, times = TIMES, lines: string[] = []): Promise<Leader> {
  const log = pino({}, { write: (line: string) => void lines.push(line) });
  const leader = new Leader({
    access: await findAccess(),
    find: findAccess,
    lease: 'pool-picker',
    identity,
    log,
    times,
  });
  t.after(() => leader.close());
  return leader;
}

const holder = (kube: FakeKube): string => kube.leases.holderOf('pool-picker');

test('one of several leads; one that ends releases the lease, and another leads', async (t) => {
  const kube = await startFakeKube(t);
  const leaders = await Promise.all(['a', 'b', 'c'].map((name) => startLeader(t, name)));
  const leading = (): Leader[] => leaders.filter(({ isLeading }) => isLeading);
  await until('one leads', () => leading().length === 1);
  const [first] = leading();
  equal(holder(kube), ['a', 'b', 'c'][leaders.indexOf(first!)]);
  await first!.close();
  equal(first!.isLeading, false);
  await until('another leads', () => leading().length === 1);
  ok(!leading().includes(first!));
  equal(kube.leases.leases.get('pool-picker')?.spec?.leaseTransitions, 2);
});

test('one that releases the lease leads until another one does', async (t) => {
  const kube = await startFakeKube(t);
  const first = await startLeader(t, 'a');
  await until('it leads', () => first.isLeading);
  first.release();
  await until('the lease is released', () => holder(kube) === '');
  const { length } = kube.leases.asked;
  await until('it has read the lease again', () => kube.leases.asked.length > length + 1);
  ok(first.isLeading && !first.hasHandedOverWithin(60_000));
  const next = await startLeader(t, 'b');
  await until('the next one leads, and only that', () => next.isLeading && !first.isLeading);
  ok(first.hasHandedOverWithin(60_000) && !first.hasHandedOverWithin(0));
  equal(holder(kube), 'b');
});

test('a lease that its holder does not renew any more is taken over after its duration', async (t) => {
  const kube = await startFakeKube(t);
  const dead = { holderIdentity: 'dead', leaseDurationSeconds: 1, renewTime: '2999-01-01T00:00:00.000000Z' };
  const path = { metadata: { name: 'pool-picker', namespace: 'rl', resourceVersion: '0' }, spec: dead };
  kube.leases.leases.set('pool-picker', path);
  const startMs = performance.now();
  const leader = await startLeader(t, 'next');
  await until('it leads', () => leader.isLeading);
  ok(performance.now() - startMs >= 1_000, 'not before');
  equal(holder(kube), 'next');
});

test('without the API server the holder stops leading before another may begin, and leads again with it', async (t) => {
  const kube = await startFakeKube(t);
  const lines: string[] = [];
  const leader = await startLeader(t, 'a', { ...TIMES, deadlineMs: 300 }, lines);
  await until('it leads', () => leader.isLeading);
  kube.leases.refusal = 500;
  await until('it does not lead', () => !leader.isLeading);
  equal(holder(kube), 'a', 'no other replica may lead yet');
  await until('it is logged', () => lines.some((line) => line.includes('this replica does not lead')));
  equal(lines.filter((line) => line.includes('not read or written')).length, 1, 'logged once');
  kube.leases.refusal = null;
  await until('it leads again', () => leader.isLeading);
  await until('it is logged', () => lines.at(-1)!.includes('this replica leads'));
});

test('what others wrote into the lease stays', async (t) => {
  const kube = await startFakeKube(t);
  const metadata = { name: 'pool-picker', namespace: 'rl', resourceVersion: '0', labels: { team: 'rl' } };
  kube.leases.leases.set('pool-picker', { metadata, spec: {} });
  const leader = await startLeader(t, 'a');
  await until('it leads', () => leader.isLeading);
  deepEqual(kube.leases.leases.get('pool-picker')?.metadata?.labels, { team: 'rl' });
});
