import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LoopLag } from './loop-lag.ts';

const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

test('a block of the event loop is seen, as long as it was', async () => {
  const lag = new LoopLag();
  const countAbove = (seconds: number): number =>
    lag.histogram.counts.slice(lag.histogram.bounds.indexOf(seconds) + 1).reduce((sum, count) => sum + count, 0);
  while (lag.histogram.count === 0) await turn();
  const before = countAbove(0.1);
  const startMs = performance.now();
  while (performance.now() - startMs < 150);
  const seen = lag.histogram.count;
  while (lag.histogram.count === seen) await turn();
  assert.equal(countAbove(0.1), before + 1);
  lag.close();
  const { count } = lag.histogram;
  await new Promise((resolve) => setTimeout(resolve, 60));
  assert.equal(lag.histogram.count, count);
});
