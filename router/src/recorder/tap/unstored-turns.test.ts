import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SESSION_IDLE_MS } from '../shared/memory-limit.ts';
import { UnstoredTurns } from './unstored-turns.ts';

const name = (session: string, tenant = '') => ({ session, tenant });

test('a thread that ends may have lost what its store had not confirmed', () => {
  let nowMs = 0;
  const turns = new UnstoredTurns(() => nowMs++);
  turns.add(name('by time'));
  const first = turns.add(name('confirmed'))!;
  turns.add(name('going on'));
  turns.storedBefore(1);
  turns.stored(name('confirmed'), first);
  const earlier = turns.add(name('two'))!;
  turns.add(name('two'));
  turns.stored(name('two'), earlier);
  turns.add(name(''));
  assert.deepEqual(turns.lose(), [name('going on'), name('two')]);
  assert.equal(turns.hasUnproven, false);
});

test('what is lost stays lost until a later turn of its session is stored, or the session is over', () => {
  let nowMs = 0;
  const turns = new UnstoredTurns(() => nowMs);
  for (const session of ['a', 'b', 'c']) turns.miss(name(session, 'tenant'));
  turns.miss(name('a'));
  turns.storedBefore(1);
  turns.over({ session: 'b' });
  turns.stored(name('c', 'tenant'), turns.add(name('c', 'tenant'))!);
  assert.deepEqual(turns.lose(), [name('a', 'tenant'), name('a')]);
  turns.over(name('a'));
  assert.deepEqual(turns.lose(), [name('a', 'tenant')]);
  nowMs = SESSION_IDLE_MS;
  assert.deepEqual(turns.lose(), []);
});
