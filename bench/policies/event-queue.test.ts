import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../router/test/harness/fast-check.ts';
import { EventQueue } from './event-queue.ts';

test('items come out by key, and those of one key in the order they went in', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(20)), (keys) => {
      const queue = new EventQueue<{ key: number; place: number }>();
      for (const [place, key] of keys.entries()) queue.push(key, { key, place });
      const sorted = keys.map((key, place) => ({ key, place })).sort((a, b) => a.key - b.key || a.place - b.place);
      for (const expected of sorted) {
        assert.equal(queue.firstKey, expected.key);
        assert.deepEqual(queue.first, expected);
        assert.deepEqual(queue.pop(), expected);
      }
      assert.equal(queue.size, 0);
    }),
  );
});

test('pushes and pops may alternate, and a given tie-breaker decides among equal keys', () => {
  const queue = new EventQueue<string>();
  queue.push(1, 'b', 2);
  queue.push(1, 'a', 1);
  assert.equal(queue.pop(), 'a');
  queue.push(0, 'first', 9);
  queue.push(1, 'c', 3);
  assert.deepEqual([queue.pop(), queue.pop(), queue.pop(), queue.pop()], ['first', 'b', 'c', undefined]);
  assert.equal(queue.firstKey, Infinity);
});
