import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { SlotHeap } from './slot-heap.ts';

const slot = fc.nat(90);
const change = fc.oneof(
  { weight: 3, arbitrary: fc.record({ slot, key: fc.oneof(fc.nat(9), fc.double({ noNaN: true, min: 0.5 })) }) },
  { weight: 1, arbitrary: fc.record({ slot, key: fc.constant(null) }) },
);

function shown(heap: SlotHeap, most = Infinity): number[] {
  const slots: number[] = [];
  for (heap.start(); heap.slot !== -1 && slots.length < most; heap.next()) slots.push(heap.slot);
  return slots;
}

test('slots are shown in the order of their keys after any changes', () => {
  fc.assert(
    fc.property(fc.array(change, { maxLength: 200 }), fc.nat(20), (changes, most) => {
      const heap = new SlotHeap();
      const known = new Map<number, number>();
      for (const { slot: at, key } of changes) {
        if (key === null) {
          heap.delete(at);
          known.delete(at);
        } else {
          heap.set(at, key);
          known.set(at, key);
        }
        assert.equal(heap.size, known.size);
        assert.ok(known.get(heap.first) === Math.min(...known.values()) || (known.size === 0 && heap.first === -1));
        const keys = shown(heap, most).map((each) => known.get(each)!);
        assert.deepEqual(keys, [...known.values()].toSorted((a, b) => a - b).slice(0, most));
      }
      const all = shown(heap);
      assert.deepEqual(new Set(all), new Set(known.keys()));
      assert.equal(all.length, known.size);
      for (let at = 0; at <= 100; at++) assert.ok(Object.is(heap.keyOf(at), known.get(at) ?? Number.NaN));
    }),
    { numRuns: 300 },
  );
});
