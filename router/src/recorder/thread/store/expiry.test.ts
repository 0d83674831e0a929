import assert from 'node:assert/strict';
import { test } from 'node:test';
import { turnOf } from '../../../../test/harness/turns.ts';
import { TurnIds } from '../capture/turn-id.ts';
import { Expiry } from './expiry.ts';
import { MemoryStore } from './memory.ts';
import { StoreAway, turnsOf } from './store.ts';

const AGE_MS = 3_600_000;
const OLD = 1_000;
const ids = new TurnIds();

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
    ids,
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
  await expiry.removeOld(now);
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
    ids,
    letGo: () => true,
    remove: ({ session }) => Promise.resolve(removed.push(session)),
  });
  await expiry.removeOld(1e15 + AGE_MS);
  expiry.close();
  assert.deepEqual(removed, ['crowded']);
});

test('a session that can not be read, or was recorded while the clock was ahead, keeps no other one from going', async (t) => {
  const now = Date.now();
  const store = filled({ damaged: [OLD], ahead: [now + 1e9], 'old 1': [OLD + 1], 'old 2': [OLD + 2] });
  let isAway = false;
  const newest = store.newest.bind(store);
  store.newest = (query) => {
    if (query.session === 'damaged') throw isAway ? new StoreAway('no answer') : new Error('can not be read');
    return newest(query);
  };
  const expiry = expiryOver(store);
  t.after(() => expiry.close());
  isAway = true;
  await assert.rejects(expiry.removeOld(now), StoreAway);
  assert.equal(namesIn(store).length, 4);
  isAway = false;
  await expiry.removeOld(now);
  assert.deepEqual(namesIn(store), ['damaged', 'ahead']);
});

test('what this process has just stored stays, whatever its clock said then', async (t) => {
  const store = filled({});
  store.put([turnOf({ id: ids.next(), session: 'before', startedAtMs: OLD })]);
  let isReady = false;
  const sessions = store.sessions.bind(store);
  store.sessions = (query) => (isReady ? sessions(query) : []);
  const expiry = expiryOver(store);
  t.after(() => expiry.close());
  store.put([turnOf({ id: ids.next(), session: 'since', startedAtMs: OLD })]);
  isReady = true;
  await expiry.removeOld(Date.now());
  assert.deepEqual(namesIn(store), ['since']);
});

test('a clock that was ahead when the process started removes nothing that is recorded with the right one', async (t) => {
  const origin = performance.timeOrigin;
  Object.defineProperty(performance, 'timeOrigin', { value: origin + 10 * AGE_MS, configurable: true });
  t.after(() => Object.defineProperty(performance, 'timeOrigin', { value: origin, configurable: true }));
  const store = filled({ old: [OLD], new: [Date.now()] });
  const expiry = expiryOver(store);
  while (expiry.expired === 0) await new Promise(setImmediate);
  // It has looked at all of them when it can be asked again.
  await expiry.removeOld(Date.now());
  expiry.close();
  assert.deepEqual(namesIn(store), ['new']);
});
