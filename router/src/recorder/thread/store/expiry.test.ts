import assert from 'node:assert/strict';
import { test } from 'node:test';
import { turnOf } from '../../../../test/harness/turns.ts';
import { Expiry } from './expiry.ts';
import { MemoryStore } from './memory.ts';
import { turnsOf } from './store.ts';

const AGE_MS = 3_600_000;
const OLD = 1_000;

/** Sessions by name, each with the starts of its turns. */
function filled(sessions: Readonly<Record<string, readonly number[]>>): MemoryStore {
  const store = new MemoryStore(1e9);
  for (const [session, starts] of Object.entries(sessions)) {
    for (const startedAtMs of starts) store.put([turnOf({ session, startedAtMs })]);
  }
  return store;
}

const namesIn = (store: MemoryStore): string[] => store.sessions({ limit: 1_000 }).map(({ session }) => session);

function expiryOver(store: MemoryStore, inUse: readonly string[] = []): Expiry {
  return new Expiry({
    store,
    maxAgeMs: AGE_MS,
    letGo: (session) => !inUse.includes(session),
    remove: async ({ session, tenant }) => store.removeSession(session, tenant),
  });
}

test('sessions whose last turn is too old go as a whole, others stay as a whole', async (t) => {
  const now = Date.now();
  const old = Object.fromEntries(Array.from({ length: 250 }, (_, i) => [`old ${i}`, [OLD + i, OLD + i + 1]]));
  const store = filled({ ...old, 'goes on': [OLD, now], 'in use': [OLD], late: [now] });
  const expiry = expiryOver(store, ['in use']);
  t.after(() => expiry.close());
  await expiry.removeBefore(now - AGE_MS);
  assert.deepEqual(namesIn(store), ['goes on', 'in use', 'late']);
  assert.equal((await turnsOf(store, 'goes on')).length, 2);
});

test('it looks by itself, at its start first', async () => {
  const store = filled({ old: [OLD, OLD + 1], new: [Date.now()] });
  const expiry = expiryOver(store);
  while (expiry.expired === 0) await new Promise(setImmediate);
  expiry.close();
  assert.equal(expiry.expired, 2);
  assert.deepEqual(namesIn(store), ['new']);
});

test('a session of very many turns goes as any other does', async () => {
  const many = Array.from({ length: 200_000 }, () => ({ startedAtMs: OLD }));
  class Crowded extends MemoryStore {
    override newest = () => many as never;
  }
  const store = new Crowded(1e9);
  store.put([turnOf({ session: 'crowded', startedAtMs: OLD })]);
  const removed: string[] = [];
  const expiry = new Expiry({
    store,
    maxAgeMs: 1e15,
    letGo: () => true,
    remove: ({ session }) => Promise.resolve(removed.push(session)),
  });
  await expiry.removeBefore(AGE_MS);
  expiry.close();
  assert.deepEqual(removed, ['crowded']);
});
