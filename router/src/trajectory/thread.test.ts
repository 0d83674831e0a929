import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Ledger } from './ledger.ts';

test('the thread starts, answers and ends', async () => {
  const ledger = new Ledger({ tokenizerPath: null, dataDir: null }, (error) => assert.fail(error));
  assert.equal(await ledger.ask('close', null), undefined);
  await ledger.close();
  await assert.rejects(ledger.ask('close', null), /ended/);
});
