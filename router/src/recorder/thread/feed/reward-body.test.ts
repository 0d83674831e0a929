import assert from 'node:assert/strict';
import { test } from 'node:test';
import { turnOf } from '../../../../test/harness/turns.ts';
import { until } from '../../../../test/harness/within.ts';
import type { Turn } from '../../shared/turn.ts';
import { MemoryStore } from '../store/memory.ts';
import { TurnWriter } from '../store/writer.ts';
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
    readReward(Buffer.from(JSON.stringify({ token_rewards: rewards })), name, new TurnWriter(store));
  const wrong = await give(1, 2, 3, 4, 5, 6, 7, 8);
  assert.equal(wrong, '"token_rewards" has 8 numbers, and the newest trajectory has 4 sampled tokens.');
  const change = await give(1, 2, 3, 4);
  assert.ok(typeof change !== 'string');
  assert.deepEqual(change.details!.tokens, { [first.id]: [], [second.id]: [], [third.id]: [1, 2, 3, 4] });
});

test('rewards in lists are given to turns of other sessions too that the trajectory has', async () => {
  const store = new MemoryStore(1e9);
  const first = turnOf({ session: 'other' });
  const second = turnOf({ session: 's', parent: first.id, keeps: 4, index: 1 });
  store.put([first, second]);
  const body = { turn_rewards: [0.5, 1], token_rewards: [1, 2, 3, 4] };
  const change = await readReward(Buffer.from(JSON.stringify(body)), name, new TurnWriter(store));
  assert.ok(typeof change !== 'string', change as string);
  assert.deepEqual(change.details!.turns, { [first.id]: 0.5, [second.id]: 1 });
  assert.deepEqual(change.details!.tokens, { [first.id]: [1, 2], [second.id]: [3, 4] });
});

test('token rewards of a turn are one for each token that was sampled in it', async () => {
  const store = new MemoryStore(1e9);
  const turn = turnOf({ session: 's', mask: Uint8Array.of(0, 1, 1), ids: Int32Array.of(1, 2, 3) });
  store.put([turn]);
  const give = (...rewards: readonly number[]) =>
    readReward(Buffer.from(JSON.stringify({ token_rewards: { [turn.id]: rewards } })), name, new TurnWriter(store));
  for (const wrong of [[], [1], [1, 2, 3]]) {
    const problem = `"token_rewards" has ${wrong.length} numbers for the turn '${turn.id}', which has 2 sampled tokens.`;
    assert.equal(await give(...wrong), problem);
  }
  const change = await give(1, 2);
  assert.ok(typeof change !== 'string');
  assert.deepEqual(change.details!.tokens, { [turn.id]: [1, 2] });
});

test('rewards of turns that the store did not take yet are no mistake of the trainer', async (t) => {
  let isFull = true;
  t.after(() => (isFull = false));
  class FullStore extends MemoryStore {
    override put(turns: readonly Turn[]): void {
      if (isFull) throw new Error('database or disk is full');
      super.put(turns);
    }
  }
  const writer = new TurnWriter(new FullStore(1e9), 1e9, 5);
  const turn = turnOf({ session: 's' });
  writer.put(turn);
  await writer.flush();
  const give = (reward: object) => readReward(Buffer.from(JSON.stringify(reward)), name, writer);
  const away = { message: "turns of session 's' are not stored yet: database or disk is full" };
  await assert.rejects(give({ turn_rewards: [1] }), away);
  await assert.rejects(give({ token_rewards: { [turn.id]: [1] } }), away);
  assert.deepEqual(await give({ reward: 1 }), { id: '', reward: 1 });
  isFull = false;
  await until('the store has them', () => writer.state.stored === 1);
  assert.ok(typeof (await give({ turn_rewards: [1] })) !== 'string');
});
