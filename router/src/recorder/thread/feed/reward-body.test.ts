import assert from 'node:assert/strict';
import { test } from 'node:test';
import { turnOf } from '../../../../test/harness/turns.ts';
import { MemoryStore } from '../store/memory.ts';
import { readReward } from './reward-body.ts';

const name = { session: 's', tenant: '' };

test('token rewards in a list are those of the tokens that the trajectory keeps of each turn', async () => {
  const store = new MemoryStore(1e9);
  /** Six tokens of a prompt, and four that were sampled. */
  const turn = (parent: string | null, keeps: number) => {
    const mask = new Uint8Array(10).fill(1, 6);
    const turnIds = Int32Array.from(mask, (_, i) => keeps + i);
    return turnOf({ session: 's', parent, keeps, ids: turnIds, mask, finishReason: 'length', versions: [] });
  };
  const first = turn(null, 0);
  const second = turn(first.id, 10);
  // The third turn continues the second one and keeps only its first three tokens.
  const third = turn(second.id, 3);
  store.put([first, second, third]);
  const give = (...rewards: readonly number[]) =>
    readReward(Buffer.from(JSON.stringify({ token_rewards: rewards })), name, store);
  const wrong = await give(1, 2, 3, 4, 5, 6, 7, 8);
  assert.equal(wrong, '"token_rewards" has 8 numbers, and the newest trajectory has 4 sampled tokens.');
  const change = await give(1, 2, 3, 4);
  assert.ok(typeof change !== 'string');
  assert.deepEqual(change.details!.tokens, { [first.id]: [], [second.id]: [], [third.id]: [1, 2, 3, 4] });
});
