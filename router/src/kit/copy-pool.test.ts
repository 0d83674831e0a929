import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CopyPool } from './copy-pool.ts';

const source = Uint8Array.from({ length: 100 }, (_, i) => i);

test('a copy holds what was taken, whatever happens to the source', () => {
  const pool = new CopyPool(64, 2);
  const bytes = source.slice();
  const copy = pool.take(bytes, 10, 20);
  bytes.fill(0);
  assert.deepEqual([...copy.subarray(0, 10)], [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
});

test('a buffer that was given back is used again', () => {
  const pool = new CopyPool(64, 2);
  const first = pool.take(source, 0, 5);
  pool.giveBack(first);
  const second = pool.take(source, 0, 64);
  assert.equal(second.buffer, first.buffer);
});

test('one that is still in use is not', () => {
  const pool = new CopyPool(64, 2);
  assert.notEqual(pool.take(source, 0, 5).buffer, pool.take(source, 0, 5).buffer);
});

test('larger parts get a buffer of their own, which is not kept', () => {
  const pool = new CopyPool(64, 2);
  const large = pool.take(source, 0, 100);
  assert.deepEqual([...large], [...source]);
  pool.giveBack(large);
  assert.notEqual(pool.take(source, 0, 10).buffer, large.buffer);
});

test('no more are kept than the limit', () => {
  const pool = new CopyPool(64, 1);
  const [first, second] = [pool.take(source, 0, 1), pool.take(source, 0, 1)];
  pool.giveBack(first);
  pool.giveBack(second);
  assert.equal(pool.take(source, 0, 1).buffer, first.buffer);
  assert.notEqual(pool.take(source, 0, 1).buffer, second.buffer);
});
