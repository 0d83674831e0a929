import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from '../../test/harness/within.ts';
import { HeapGuard, oldSpaceLimit } from './heap-guard.ts';

function guardOf(): { guard: HeapGuard; looks: (share: number, nowMs?: number) => boolean; collections: () => number } {
  let usedBytes = 0;
  let count = 0;
  const guard = new HeapGuard(
    () => ({ usedBytes, limitBytes: 1_000 }),
    () => count++,
  );
  const looks = (share: number, nowMs = 0): boolean => {
    usedBytes = share * 1_000;
    guard.look(nowMs);
    return guard.isHigh;
  };
  return { guard, looks, collections: () => count };
}

test('high from 70 % on, until it is below 65 %', () => {
  const { looks } = guardOf();
  assert.deepEqual(
    [0.5, 0.69, 0.7, 0.95, 0.66, 0.65, 0.64, 0.69, 0.71].map((share) => looks(share)),
    [false, false, true, true, true, true, false, false, true],
  );
});

test('while it stays high garbage is looked for, but seldom', () => {
  const { looks, collections } = guardOf();
  looks(0.95, 0);
  looks(0.95, 4_999);
  assert.equal(collections(), 0);
  looks(0.95, 5_000);
  assert.equal(collections(), 1);
  looks(0.95, 34_999);
  assert.equal(collections(), 1);
  looks(0.95, 35_000);
  assert.equal(collections(), 2);
  looks(0.5, 36_000);
  looks(0.95, 100_000);
  assert.equal(collections(), 2, 'each time anew');
});

test('the limit is that of the old generation: as set for the process, else what the young generation leaves', () => {
  const heap = 4_500_000_000;
  assert.equal(oldSpaceLimit(heap, ''), heap - 201_326_592);
  assert.equal(oldSpaceLimit(250_000_000, ''), 125_000_000);
  assert.equal(oldSpaceLimit(270_000_000, '--max-old-space-size=64'), 64 * 1_048_576);
  assert.equal(oldSpaceLimit(400_000_000, '--max-old-space-size=64 x --max_old_space_size=128'), 128 * 1_048_576);
});

test('this process is far from its limit', () => {
  const guard = new HeapGuard();
  guard.look(0);
  assert.equal(guard.isHigh, false);
});

test('the real collector finds garbage, soon after the call', async () => {
  const guard = new HeapGuard(() => ({ usedBytes: 95, limitBytes: 100 }));
  guard.look(0);
  const garbage = new WeakRef({});
  // A WeakRef holds its object for the rest of this turn of the event loop.
  await new Promise((resolve) => setImmediate(resolve));
  guard.look(10_000);
  await until('it is collected', () => garbage.deref() === undefined);
});
