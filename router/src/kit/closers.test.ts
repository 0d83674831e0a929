import { deepEqual, rejects } from 'node:assert/strict';
import { test } from 'node:test';
import { Closers } from './closers.ts';

test('the last one first, each when the one before it is closed, and none twice', async () => {
  const closed: string[] = [];
  const closers = new Closers();
  closers.add(() => closed.push('first'));
  closers.add(async () => {
    await new Promise(setImmediate);
    closed.push('second');
  });
  closers.add(() => closed.push('third'));
  await closers.close();
  await closers.close();
  deepEqual(closed, ['third', 'second', 'first']);
});

test('one that fails keeps no other open', async () => {
  const closed: string[] = [];
  const closers = new Closers();
  closers.add(() => closed.push('first'));
  closers.add(() => Promise.reject(new Error('later')));
  closers.add(() => {
    throw new Error('sooner');
  });
  await rejects(closers.close(), /sooner/);
  deepEqual(closed, ['first']);
});
