import { ok } from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { Worker } from 'node:worker_threads';
import { keepYoungGenerationSmall } from './serve.ts';

/** Both halves. */
const ENOUGH_BYTES = 2 * 16 * 2 ** 20;

/**
 * Says how large its young generation became while many objects survived collections. It has a limit of its own, as V8's depends on
 * the memory of the machine.
 */
const SURVIVORS = `
  const { getHeapSpaceStatistics } = require('node:v8');
  const { parentPort, workerData: { serve, isBounded } } = require('node:worker_threads');
  import(serve).then(({ youngGenerationLimit }) => {
    const limit = isBounded ? youngGenerationLimit() : () => {};
    const kept = [];
    let largest = 0;
    for (let round = 0; round < 300; round++) {
      for (let n = 0; n < 20_000; n++) kept[(round * 20_000 + n) % 60_000] = { a: n, b: [n, n] };
      limit();
      const { space_size } = getHeapSpaceStatistics().find((space) => space.space_name === 'new_space');
      largest = Math.max(largest, space_size);
    }
    parentPort.postMessage(largest);
  });`;

test('the young generation stays small, though V8 would let it grow', async () => {
  // V8 may put objects that often survive into the old generation at once.
  setFlagsFromString('--no-allocation-site-pretenuring');
  const largest = async (isBounded: boolean): Promise<number> => {
    const worker = new Worker(SURVIVORS, {
      eval: true,
      workerData: { serve: import.meta.resolve('./serve.ts'), isBounded },
      resourceLimits: { maxYoungGenerationSizeMb: 192 },
    });
    const [bytes] = (await once(worker, 'message')) as [number];
    await worker.terminate();
    return bytes;
  };
  const unbounded = await largest(false);
  ok(unbounded > ENOUGH_BYTES, `${unbounded} bytes without the bound`);
  const bounded = await largest(true);
  ok(bounded <= ENOUGH_BYTES && bounded > ENOUGH_BYTES / 4, `${bounded} bytes with it`);
  setFlagsFromString('--semi-space-growth-factor=2');
});

/** Says how large its young generation is from the start. */
const THREAD = `
  const { getHeapSpaceStatistics } = require('node:v8');
  const { space_size } = getHeapSpaceStatistics().find((space) => space.space_name === 'new_space');
  require('node:worker_threads').parentPort.postMessage(space_size);`;

test('a thread begins with enough, as it can not grow while the main one may not', async (t) => {
  const sizeOfThread = async (): Promise<number> => {
    const worker = new Worker(THREAD, { eval: true });
    t.after(() => worker.terminate());
    return ((await once(worker, 'message')) as [number])[0];
  };
  const before = await sizeOfThread();
  keepYoungGenerationSmall();
  const after = await sizeOfThread();
  ok(before < ENOUGH_BYTES / 2 && after >= ENOUGH_BYTES / 2, `${before}, then ${after} bytes`);
});
