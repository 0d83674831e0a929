import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { memoryStore } from '../choose/state.ts';
import { type Adapter, Sessions } from './sessions.ts';

const SWEEP_MS = 10_000;
const adapter: Adapter = { name: 'tinker/run/first', directory: '/ckpt/run/first', archive: null };
const base = { baseModel: 'sim', modelPath: '', adapter: null, snapshot: null };

test('a session without a sign of life expires with its sampling sessions, and its adapters are unused then', (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  let timeoutMs = 3_600_000;
  const state = memoryStore().open('tinker');
  const sessions = new Sessions(state, () => timeoutMs);
  const unused: Adapter[] = [];
  sessions.onUnused = (each) => unused.push(each);
  const session = sessions.open('a');
  const own = sessions.openSampling(session, 'a', base);
  const tuned = sessions.openSampling(session, 'a', { ...base, modelPath: 'tinker://run/first', adapter });
  // A sampling session that was learned from the trainer belongs to no session here.
  const learned = sessions.openSampling('', 'a', base, 'theirs');
  t.mock.timers.tick(SWEEP_MS);
  equal(sessions.sampling(own.id, 'a'), own);
  equal(sessions.sampling(own.id, 'b'), null, 'another tenant has no such session');

  timeoutMs = -1;
  t.mock.timers.tick(SWEEP_MS);
  deepEqual(
    [own.id, tuned.id].map((id) => sessions.sampling(id, 'a')),
    [null, null],
  );
  equal(sessions.touch(session, 'a'), false);
  equal(sessions.sampling(learned.id, 'a'), learned);
  deepEqual(unused, [adapter]);
  deepEqual(
    Array.from(state.entries(), ([id]) => id),
    ['theirs'],
    'a restart does not bring it back',
  );
  sessions.stop();
});

test('what a damaged disk left of saved sessions is left out', (t) => {
  const state = memoryStore().open('tinker');
  for (const [id, text] of Object.entries({ a: 'no JSON', b: 'null', c: '[]', d: '{"baseModel":"sim"}' }))
    state.set(id, text);
  state.set('session_1', '{"tenant":"a"}');
  const sessions = new Sessions(state, () => 3_600_000);
  t.after(() => sessions.stop());
  deepEqual(sessions.counts, { sessions: 1, sampling: 0 });
  deepEqual(sessions.adapters, []);
});
