import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CopyPool } from './socket-memory.ts';

test('a buffer that was given back is used again', () => {
  const pool = new CopyPool(64, 2);
  const first = pool.take(5);
  pool.giveBack(first);
  assert.equal(pool.take(64), first);
});

test('a buffer that is still in use is not', () => {
  const pool = new CopyPool(64, 2);
  assert.notEqual(pool.take(5), pool.take(5));
});

test('larger ones are made for their use and not kept', () => {
  const pool = new CopyPool(64, 2);
  const large = pool.take(100);
  assert.equal(large.size, 100);
  pool.giveBack(large);
  assert.notEqual(pool.take(10), large);
});

test('no more are kept than the limit', () => {
  const pool = new CopyPool(64, 1);
  const [first, second] = [pool.take(1), pool.take(1)];
  pool.giveBack(first);
  pool.giveBack(second);
  assert.equal(pool.take(1), first);
  assert.notEqual(pool.take(1), second);
});

test('a copy has what was put into it since it began', () => {
  const pool = new CopyPool(8, 1);
  const copy = pool.take(8);
  const all = () => Buffer.from(copy.view()).toString('latin1');
  copy.begin('a\xe9');
  copy.add(Buffer.from('01234'), 1, 4);
  assert.deepEqual([all(), copy.room], ['a\xe9123', 3]);
  pool.giveBack(copy);
  assert.equal(pool.take(1), copy);
  copy.begin('b');
  assert.deepEqual([all(), copy.room], ['b', 7]);
});
