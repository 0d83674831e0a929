import assert from 'node:assert/strict';
import { test } from 'node:test';
import { recordedLog } from '../../../test/harness/log-lines.ts';
import type { SessionEnd, SessionEnded } from '../thread/store/store-calls.ts';
import { PendingEnds } from './pending-ends.ts';

/** A store that may be away, or refuse one session. */
function storeOfEnds() {
  const stored: SessionEnd[] = [];
  const state = { isAway: false, refused: '' };
  const store = async (end: SessionEnd): Promise<SessionEnded> => {
    await Promise.resolve();
    if (state.isAway || end.session === state.refused) throw new Error('away');
    stored.push(end);
    return { known: 1, isTaken: false, movedTo: null };
  };
  const ends = new PendingEnds(store, recordedLog().log);
  const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  return { ends, stored, state, settle };
}

test('an end that the store does not take is stored when it takes it, and once', async () => {
  const { ends, stored, state, settle } = storeOfEnds();
  state.isAway = true;
  ends.keep({ session: 'a', tenant: '', reward: 1 });
  await settle();
  await ends.retry();
  assert.deepEqual([stored, ends.waiting], [[], 1]);
  state.isAway = false;
  await Promise.all([ends.retry(), ends.retry()]);
  await ends.retry();
  assert.deepEqual([stored, ends.waiting], [[{ session: 'a', tenant: '', reward: 1 }], 0]);
});

test('of two rewards of a session the later one is stored last', async () => {
  const { ends, stored, state, settle } = storeOfEnds();
  state.isAway = true;
  ends.keep({ session: 'a', tenant: '', reward: 1, labels: ['x'] });
  await settle();
  ends.keep({ session: 'a', tenant: '', reward: 2 });
  await settle();
  state.isAway = false;
  await ends.end({ session: 'a', reward: 3 });
  assert.deepEqual(stored, [
    { session: 'a', tenant: '', reward: 2, labels: ['x'] },
    { session: 'a', reward: 3 },
  ]);
});

test('an end that the store never takes delays no other one', async () => {
  const { ends, stored, state, settle } = storeOfEnds();
  state.isAway = true;
  for (const session of ['bad', 'a', 'b']) ends.keep({ session, tenant: '' });
  await settle();
  Object.assign(state, { isAway: false, refused: 'bad' });
  await ends.retry();
  await ends.retry();
  assert.deepEqual(
    stored.map(({ session }) => session),
    ['a', 'b'],
  );
  assert.equal(ends.waiting, 1);
});

test('the later end of a session is stored last, also where the store never takes that of another session', async () => {
  const { ends, stored, state, settle } = storeOfEnds();
  state.isAway = true;
  for (const session of ['bad', 'a']) ends.keep({ session, tenant: '', reward: 1 });
  await settle();
  Object.assign(state, { isAway: false, refused: 'bad' });
  await ends.end({ session: 'a', tenant: '', reward: 2 });
  await ends.retry();
  await ends.retry();
  assert.deepEqual(
    stored.map(({ reward }) => reward),
    [1, 2],
  );
  assert.equal(ends.waiting, 1);
});

test('an end that was tried with its response keeps its place before a later one', async () => {
  const { ends, stored, settle } = storeOfEnds();
  const tried = Promise.withResolvers<boolean>();
  ends.keep({ session: 'a', tenant: '', reward: 1 }, tried.promise);
  assert.ok(ends.has('a'));
  const later = ends.end({ session: 'a', tenant: '', reward: 2 });
  await settle();
  assert.deepEqual(stored, []);
  tried.resolve(false);
  await later;
  assert.deepEqual(
    stored.map(({ reward }) => reward),
    [1, 2],
  );
  await settle();
  assert.ok(!ends.has('a'));
  ends.keep({ session: 'a', tenant: '', reward: 3 }, Promise.resolve(true));
  await settle();
  assert.equal(stored.length, 2);
});
