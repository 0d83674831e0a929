import assert from 'node:assert/strict';
import { test } from 'node:test';
import { turnOf } from '../../../../test/harness/turns.ts';
import { until } from '../../../../test/harness/within.ts';
import type { Turn } from '../../shared/turn.ts';
import { MemoryStore } from './memory.ts';
import { storeCalls } from './store-calls.ts';
import { TurnWriter } from './writer.ts';

const NO_FEED = {
  isTaken: () => Promise.resolve(false),
  ended: () => Promise.resolve({ members: 0, isTaken: false }),
  movedTo: () => null,
};

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
    feed: NO_FEED,
    counted: () => ({ lostParts: 3, expired: 0, evictedTurns: 0, lostPrompts: 0 }),
  });
  const { turns, bytes, dropped, isFailing } = await calls.storeState();
  assert.deepEqual({ turns, bytes, dropped, isFailing }, { turns: -1, bytes: -1, dropped: 3, isFailing: false });
});

test('a session whose turns wait for the store is not removed before them', async () => {
  class Full extends MemoryStore {
    isFull = true;
    override put(turns: readonly Turn[]): void {
      if (this.isFull) throw new Error('OOM command not allowed');
      super.put(turns);
    }
  }
  const store = new Full(1e9);
  const writer = new TurnWriter(store, undefined, 10);
  const calls = storeCalls({
    writer,
    dataDir: null,
    recorded: () => writer.flush(),
    onEnded: () => {},
    feed: NO_FEED,
    counted: () => ({ lostParts: 0, expired: 0, evictedTurns: 0, lostPrompts: 0 }),
  });
  writer.put(turnOf({ session: 'a' }));
  await assert.rejects(calls.removeSession({ session: 'a' }), /turns of session 'a' are not stored yet: OOM/);
  assert.equal(await calls.removeSession({ session: 'b' }), 0);
  store.isFull = false;
  await until('it is stored', () => writer.state.pending === 0);
  assert.equal(await calls.removeSession({ session: 'a' }), 1);
  await writer.close();
});
