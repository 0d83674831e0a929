import assert from 'node:assert/strict';
import { test } from 'node:test';
import { filesForClients, openFileLimit } from './open-files.ts';

test('the system’s limit is read where it says one', () => {
  const said = 'Limit                     Soft Limit           Hard Limit           Units\n';
  assert.equal(
    openFileLimit(() => `${said}Max open files            1024                 524288               files\n`),
    1_024,
  );
  assert.equal(
    openFileLimit(() => `${said}Max open files            unlimited            unlimited            files\n`),
    Infinity,
  );
  assert.equal(
    openFileLimit(() => {
      throw new Error('ENOENT');
    }),
    Infinity,
  );
});

test('a quarter is kept for engines, a handful at least', () => {
  assert.deepEqual([1_048_576, 1_024, 64, 20].map(filesForClients), [786_432, 768, 32, 1]);
  assert.equal(filesForClients(Infinity), Infinity);
});
