import { ok } from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { Worker } from 'node:worker_threads';
import { keepYoungGenerationSmall, youngGenerationLimit } from './serve.ts';

/** Both halves. */
const ENOUGH_BYTES = 2 * 16 * 2 ** 20;

const youngBytes = (): number =>
  getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space')!.space_size;

/** V8 grows the young generation when many objects survive collections. How soon depends on when it collects. */
const MANY_ROUNDS = 1000;
const OBJECTS_PER_ROUND = 20_000;
const OBJECTS_ALIVE = 60_000;

/** Ends early when `isEnough`, which is asked after each round, says so. */
function makeSurvivors(rounds: number, isEnough: () => boolean): void {
  const kept: object[] = [];
  for (let round = 0; round < rounds; round++) {
    for (let n = 0; n < OBJECTS_PER_ROUND; n++)
      kept[(round * OBJECTS_PER_ROUND + n) % OBJECTS_ALIVE] = { a: n, b: [n, n] };
    if (isEnough()) return;
  }
}

test('the young generation stays small, though V8 would let it grow', () => {
  const limit = youngGenerationLimit();
  let largest = 0;
  makeSurvivors(MANY_ROUNDS / 10, () => {
    limit();
    largest = Math.max(largest, youngBytes());
    return false;
  });
  ok(largest > ENOUGH_BYTES / 4, 'it may grow to what is enough');
  ok(largest <= ENOUGH_BYTES, `${largest} bytes`);
  setFlagsFromString('--semi-space-growth-factor=2');
  let isLargerAlone = false;
  makeSurvivors(MANY_ROUNDS, () => (isLargerAlone = youngBytes() > ENOUGH_BYTES));
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
