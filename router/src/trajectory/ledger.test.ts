import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Ledger } from './ledger.ts';

test('turns that end after their thread did are counted', async () => {
  const died = Promise.withResolvers<Error>();
  const ledger = new Ledger({ dataDir: '/dev/null', store: 'sqlite', tokenizerPath: null }, died.resolve);
  await died.promise;
  const facts = { session: '', group: '', tenant: '', worker: '', model: '', path: '' };
  const asked = { before: '', isProof: false, stale: '', ticket: 0 };
  const times = { startedAtMs: 0, ttftMs: 0, generationMs: 0, asked };
  const answer = Buffer.from('{}');
  const turn = {
    id: 1,
    request: null,
    isStream: false,
    isLast: true,
    answer,
    expertsKey: null,
    facts: { ...facts, ...times },
  };
  ledger.turnEnded(turn, [answer]);
  ledger.turnEnded(turn, [answer, answer]);
  assert.equal(ledger.missed, 2);
});
