import assert from 'node:assert/strict';
import { totalmem } from 'node:os';
import { test } from 'node:test';
import { defaultMemoryBytes, machineMemory } from './memory-limit.ts';

const GIB = 1024 ** 3;

test('the limit of the cgroup counts where it is below the RAM', () => {
  assert.deepEqual(machineMemory(64 * GIB, 4 * GIB), { bytes: 4 * GIB, from: 'cgroup' });
  for (const none of [0, 2 ** 64, 9.2e18]) {
    assert.deepEqual(machineMemory(64 * GIB, none), { bytes: 64 * GIB, from: 'ram' });
  }
  assert.ok(machineMemory().bytes <= totalmem());
});

test('the default is a tenth of it, at most 8 GiB', () => {
  assert.equal(defaultMemoryBytes({ bytes: 40 * GIB, from: 'ram' }), 4 * GIB);
  assert.equal(defaultMemoryBytes({ bytes: 2000 * GIB, from: 'ram' }), 8 * GIB);
  assert.equal(defaultMemoryBytes({ bytes: 2 * GIB, from: 'cgroup' }), Math.floor(0.2 * GIB));
});
