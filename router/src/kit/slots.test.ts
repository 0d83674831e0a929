import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { Slots } from './slots.ts';

test('what was put under a number is taken once', () => {
  const slots = new Slots<string>();
  const [a, b] = [slots.put('a'), slots.put('b')];
  equal(slots.size, 2);
  equal(slots.take(a), 'a');
  equal(slots.take(a), undefined);
  equal(slots.size, 1);
  equal(slots.take(b), 'b');
  equal(slots.take(99), undefined);
  equal(slots.size, 0);
});

test('numbers are used again, and never twice at a time', () => {
  const slots = new Slots<number>();
  const numbers = new Set<number>();
  for (let round = 0; round < 100; round++) {
    const taken = Array.from({ length: 8 }, (_, i) => slots.put(i));
    equal(new Set(taken).size, 8);
    for (const slot of taken) numbers.add(slot);
    for (const [i, slot] of taken.entries()) equal(slots.take(slot), i);
  }
  equal(numbers.size, 8);
});

test('all at once', () => {
  const slots = new Slots<number>();
  for (let i = 0; i < 4; i++) slots.put(i);
  slots.take(1);
  deepEqual(slots.takeAll(), [0, 2, 3]);
  equal(slots.size, 0);
  equal(slots.put(9), 0);
});
