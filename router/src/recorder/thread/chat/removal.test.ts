import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { chatAnswer, startChatThread } from '../../../../test/harness/chat-thread.ts';
import { encode, endOfTurn } from '../../../../../simulator/src/tokens/tokenizer.ts';
import { MemoryStore } from '../store/memory.ts';
import { StoreAway } from '../store/store.ts';

const answer = chatAnswer([...encode('No.'), endOfTurn]);

/** A session with a turn and a chat in flight, before a store whose removals end when the test says so. */
async function start(t: TestContext, how: 'removeSession' | 'chatRemove') {
  const { calls, open, close, turn, turns } = await startChatThread(t);
  const { removeSession } = MemoryStore.prototype;
  const [begun, outcome] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  t.mock.method(MemoryStore.prototype, 'removeSession', async function (this: MemoryStore, session: string) {
    begun.resolve();
    await outcome.promise;
    return removeSession.call(this, session);
  });
  const { messages } = await turn('s', [{ role: 'user', content: 'A?' }], encode('Yes.'));
  const { id } = await open('s', [...messages, { role: 'user', content: 'B?' }]);
  return {
    calls,
    messages,
    open,
    close,
    turn,
    turns: () => turns('s'),
    begun: begun.promise,
    succeed: outcome.resolve,
    fail: () => outcome.reject(new StoreAway('no connection')),
    remove: async () => calls[how]({ session: 's', tenant: '' }),
    isKnown: () => calls.chatKnown({ session: 's', tenant: '' }),
    /** The chat in flight ends. */
    end: () => close(id, answer),
  };
}

for (const how of ['removeSession', 'chatRemove'] as const) {
  test(`${how}: a session that could not be removed goes on, and its chats in flight are recorded`, async (t) => {
    const { messages, turn, turns, fail, remove, isKnown, end } = await start(t, how);
    fail();
    await assert.rejects(remove(), StoreAway);
    assert.equal(await isKnown(), true);
    await end();
    await turn('s', [...messages, { role: 'user', content: 'C?' }], encode('Perhaps.'));
    const [first, second, third] = await turns();
    assert.deepEqual([second!.parent, third!.parent, third!.drift], [first!.id, first!.id, null]);
  });

  test(`${how}: a response that ends while the store fails to remove its session is recorded`, async (t) => {
    const { turns, begun, fail, remove, end } = await start(t, how);
    const removed = assert.rejects(remove(), StoreAway);
    await begun;
    const ended = end();
    fail();
    await Promise.all([removed, ended]);
    assert.equal((await turns()).length, 2);
  });

  test(`${how}: a response that ends while its session is removed leaves no turn`, async (t) => {
    const { turns, begun, succeed, remove, end, isKnown } = await start(t, how);
    const removed = remove();
    await begun;
    const ended = end();
    succeed();
    await Promise.all([removed, ended]);
    assert.deepEqual(await turns(), []);
    assert.equal(await isKnown(), false);
  });

  test(`${how}: a chat that comes while its session is removed begins it anew`, async (t) => {
    const { messages, open, close, turns, begun, succeed, remove } = await start(t, how);
    const removed = remove();
    await begun;
    const opening = open('s', messages.slice(0, 1));
    succeed();
    await removed;
    await close((await opening).id, answer);
    const [turn, ...others] = await turns();
    assert.deepEqual([turn!.parent, others.length], [null, 0]);
  });
}
