import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { type Lease, claimed, released, seeLease } from './lease.ts';

const AT = new Date('2026-01-02T03:04:05.678Z');
const TIME = '2026-01-02T03:04:05.678000Z';

const held = (holderIdentity: string, more: Lease['spec'] = {}): Lease => ({
  metadata: { name: 'l', resourceVersion: '7', labels: { mine: 'stays' } },
  spec: {
    holderIdentity,
    leaseDurationSeconds: 15,
    renewTime: 'then',
    acquireTime: 'before',
    leaseTransitions: 3,
    ...more,
  },
});

const claim = (lease: Lease, sinceMs: number, nowMs: number): Lease | null =>
  claimed(lease, 'me', { mark: '', sinceMs }, nowMs, 15, AT);

test('a new lease, one that nothing holds, and an expired one are claimed', () => {
  const taken = {
    holderIdentity: 'me',
    leaseDurationSeconds: 15,
    renewTime: TIME,
    acquireTime: TIME,
    leaseTransitions: 1,
  };
  deepEqual(claim({ metadata: { name: 'l' }, spec: {} }, 0, 0), { metadata: { name: 'l' }, spec: taken });
  deepEqual(claim({ metadata: { name: 'l' } }, 0, 0)?.spec, taken);
  deepEqual(claim(held(''), 0, 0)?.spec, { ...taken, leaseTransitions: 4 });
  equal(claim(held('other'), 1_000, 15_999), null);
  deepEqual(claim(held('other'), 1_000, 16_000), {
    metadata: held('other').metadata,
    spec: { ...taken, leaseTransitions: 4 },
  });
  equal(claim(held('other', { leaseDurationSeconds: 60 }), 0, 59_000), null, 'the duration is that of its holder');
});

test('a lease of its own is renewed, whatever its age', () => {
  const { spec } = claim(held('me'), 0, 1e9)!;
  deepEqual(spec, { ...held('me').spec, renewTime: TIME });
});

test('a lease counts as unchanged by its content, not by the times that it names', () => {
  const first = seeLease(held('other'), null, 100);
  equal(seeLease(held('other'), first, 900).sinceMs, 100);
  equal(seeLease(held('other', { renewTime: 'now' }), first, 900).sinceMs, 900);
  equal(seeLease(held('third'), first, 900).sinceMs, 900);
});

test("a released lease is anyone's; that of another replica is left alone", () => {
  const { spec } = released(held('me'), 'me', AT)!;
  equal(spec?.holderIdentity, '');
  equal(spec?.leaseDurationSeconds, 1);
  equal(released(held('other'), 'me', AT), null);
});
