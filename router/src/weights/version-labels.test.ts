import assert from 'node:assert/strict';
import { test } from 'node:test';
import { memoryUsed } from '../../test/harness/memory-used.ts';
import { fleetOf } from '../../test/harness/policy.ts';
import type { Worker } from '../fleet/worker.ts';
import { VersionLabels } from './version-labels.ts';

test('engines that have left keep no label, also if requests of them end after that', async () => {
  const { fleet } = fleetOf();
  const labels = new VersionLabels(fleet, { timeoutMs: 1 });
  let engines = 0;
  const pass = async (count: number): Promise<void> => {
    for (let i = 0; i < count; i++) {
      const worker = fleet.add(`http://engine-${engines++}:1`) as Worker;
      assert.equal(labels.of(worker), labels.of(worker));
      fleet.remove(worker);
      labels.watch(worker);
      assert.equal((await labels.of(worker).ask(true)).name, null);
    }
  };
  await pass(500);
  const before = memoryUsed();
  await pass(5_000);
  const bytes = (memoryUsed() - before) / 5_000;
  assert.ok(bytes < 300, `${bytes} bytes per engine`);
  labels.close();
});
