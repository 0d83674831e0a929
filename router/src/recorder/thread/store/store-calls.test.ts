import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryStore } from './memory.ts';
import { storeCalls } from './store-calls.ts';
import { TurnWriter } from './writer.ts';

test('a store that fails to count at once still reports its state', async () => {
  class Uncountable extends MemoryStore {
    override counts(): never {
      throw new Error('database disk image is malformed');
    }
  }
  const none = (): number => 0;
  const calls = storeCalls({
    writer: new TurnWriter(new Uncountable(1e9)),
    dataDir: null,
    recorded: () => Promise.resolve(),
    onEnded: none,
    feed: { isTaken: () => Promise.resolve(false), ended: () => Promise.resolve({ members: 0, isTaken: false }) },
    counted: () => ({ lostParts: 3, expired: 0, evictedTurns: 0, lostPrompts: 0 }),
  });
  const { turns, bytes, dropped, isFailing } = await calls.storeState();
  assert.deepEqual({ turns, bytes, dropped, isFailing }, { turns: -1, bytes: -1, dropped: 3, isFailing: false });
});
