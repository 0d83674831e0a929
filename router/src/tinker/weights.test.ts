import { existsSync, mkdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { deepEqual, equal } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { temporaryFolder } from '../../test/harness/temporary-folder.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Logger } from '../observe/log.ts';
import type { Adapter } from './sessions.ts';
import { Weights } from './weights.ts';

const SWEEP_MS = 10_000;

/** One that was saved a second after 1970 began. */
function adapterOf(t: TestContext, checkpoint: string): Adapter {
  const directory = temporaryFolder(t);
  const config = join(directory, 'adapter_config.json');
  writeFileSync(config, '{}');
  utimesSync(config, 1, 1);
  return { name: `${checkpoint}@${(1000).toString(36)}`, directory, archive: null };
}

/** An engine that loads adapters. Times pass at once: `unusedMs` says what is long ago. */
function scene() {
  const has = new Set<string>();
  /** What an engine waits for before it unloads. */
  let mayUnload: Promise<void> | null = null;
  const worker = {
    engineUrl: 'http://a:1',
    engine: 'vllm',
    async post(path: string, json: string | { lora_name: string }) {
      const { lora_name: name } = (typeof json === 'string' ? JSON.parse(json) : json) as { lora_name: string };
      if (path.includes('unload')) {
        if (mayUnload !== null) await mayUnload;
        has.delete(name);
      } else has.add(name);
      return { status: 200, text: '' };
    },
  } as unknown as Worker;
  const inUse = new Set<string>();
  const options = { template: undefined, full: null, unusedMs: () => unusedMs, inUse: () => inUse };
  let unusedMs = 3_600_000;
  const weights = new Weights(options, { workers: [worker], onEvent: () => {} } as unknown as Fleet, {} as Logger);
  return {
    weights,
    worker,
    has,
    inUse,
    setUnused: (ms: number) => (unusedMs = ms),
    unloadAfter: (ready: Promise<void>) => (mayUnload = ready),
  };
}

test('an adapter that was not used for long is unloaded, unless a sample is open, and loaded again when it is needed', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const { weights, worker, has, inUse, setUnused } = scene();
  const [old, busy] = [adapterOf(t, 'old'), adapterOf(t, 'busy')];
  for (const adapter of [old, busy]) await weights.load(worker, adapter);
  inUse.add(busy.name);
  t.mock.timers.tick(SWEEP_MS);
  deepEqual([...has], [old.name, busy.name]);
  setUnused(-1);
  t.mock.timers.tick(SWEEP_MS);
  deepEqual([...has], [busy.name]);
  setUnused(3_600_000);
  await weights.load(worker, old);
  deepEqual([...has], [busy.name, old.name]);
  await weights.close();
});

test('an adapter whose session ends while samples wait is unloaded after them', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const { weights, worker, has, inUse, setUnused } = scene();
  const adapter = adapterOf(t, 'first');
  await weights.load(worker, adapter);
  inUse.add(adapter.name);
  weights.unused(adapter);
  deepEqual([...has], [adapter.name]);
  await weights.load(worker, adapter);
  inUse.clear();
  setUnused(-1);
  t.mock.timers.tick(SWEEP_MS);
  deepEqual([...has], []);
  await weights.close();
});

test('the folder of an archive stays where the adapter is used again before all engines have unloaded it', async (t) => {
  const { weights, worker, unloadAfter } = scene();
  const directory = join(temporaryFolder(t), 'a.unpacked-1');
  mkdirSync(directory);
  const adapter = { name: 'a', directory, archive: `${directory}.tar.gz` };
  await weights.load(worker, adapter);
  const slow = Promise.withResolvers<void>();
  unloadAfter(slow.promise);
  weights.unused(adapter);
  await weights.load(worker, adapter);
  slow.resolve();
  await turn();
  await weights.close();
  equal(existsSync(directory), true);
});
