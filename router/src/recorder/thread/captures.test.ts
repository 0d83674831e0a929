import assert from 'node:assert/strict';
import { test } from 'node:test';
import { memoryUsed } from '../../../test/harness/memory-used.ts';
import { Captures, type OpenCapture } from './captures.ts';

class Placing extends Captures<OpenCapture> {
  protected override place(): void {}
}

for (const isInOrder of [true, false])
  test(`responses that have become turns leave nothing in memory, ${isInOrder ? 'in order' : 'in any order'}`, async () => {
    const captures = new Placing(null, isInOrder);
    const pass = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i++) captures.drop(i);
      await captures.settled();
    };
    await pass(2_000);
    const before = memoryUsed();
    for (let i = 0; i < 10; i++) await pass(2_000);
    const bytes = (memoryUsed() - before) / 20_000;
    assert.ok(bytes < 50, `${bytes} bytes per response`);
  });
