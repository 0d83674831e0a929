import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HeapLimits } from './heap-limits.ts';

test('the limits of caches fit into the heap of their thread', () => {
  const guard = { look: () => {}, isHigh: false };
  const large = new HeapLimits(guard, 4_000);
  assert.deepEqual([large.treeBytes(3_000), large.chatBytes(3_000), large.chatBytes(10)], [3_000, 1_000, 10]);
  const small = new HeapLimits(guard, 400);
  assert.deepEqual([small.treeBytes(3_000), small.chatBytes(3_000)], [200, 100]);
});

test('close to the limit nothing new is taken, until the heap is below it again', () => {
  const guard = { look: () => {}, isHigh: false };
  const heap = new HeapLimits(guard, 400);
  assert.equal(heap.refusal(), null);
  guard.isHigh = true;
  assert.equal(heap.refusal()?.code, 'overloaded');
  guard.isHigh = false;
  assert.equal(heap.refusal(), null);
});
