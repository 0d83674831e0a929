import { ok } from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { Worker } from 'node:worker_threads';
import { YoungGeneration, keepYoungGenerationSmall } from './young-generation.ts';

/** Both halves. */
const ENOUGH_BYTES = 2 * 16 * 2 ** 20;

const youngBytes = (): number =>
  getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space')!.space_size;

/** What lives for some collections is what V8 grows by. */
function makeSurvivors(afterEach: () => void): void {
  const kept: object[] = [];
  for (let i = 0; i < 100; i++) {
    for (let n = 0; n < 20_000; n++) kept[(i * 20_000 + n) % 60_000] = { a: n, b: [n, n] };
    afterEach();
  }
}

test('the young generation stays small, though V8 would let it grow', () => {
  const young = new YoungGeneration();
  makeSurvivors(() => young.look());
  ok(youngBytes() > ENOUGH_BYTES / 4, 'it may grow to what is enough');
  ok(youngBytes() <= ENOUGH_BYTES, `${youngBytes()} bytes`);
  setFlagsFromString('--semi-space-growth-factor=2');
  makeSurvivors(() => {});
  const isLargerAlone = youngBytes() > ENOUGH_BYTES;
  // Before V8 13 (Node.js 22) its own limit is no larger.
  ok(isLargerAlone === Number.parseInt(process.versions.v8, 10) >= 13, 'without the bound V8 lets it grow');
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
