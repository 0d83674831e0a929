import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { Ledger } from './ledger.ts';

test('the thread starts, answers and ends', async () => {
  const ledger = new Ledger({ tokenizerPath: null, dataDir: null }, (error) => assert.fail(error));
  assert.equal(await ledger.ask('close', null), undefined);
  await ledger.close();
  await assert.rejects(ledger.ask('close', null), /ended/);
});

test('a process that waits for nothing but the thread waits, and ends afterwards', () => {
  const ledger = new URL('./ledger.ts', import.meta.url).href;
  const program = `
    import(${JSON.stringify(ledger)}).then(async ({ Ledger }) => {
      const ledger = new Ledger({ tokenizerPath: null, dataDir: null }, () => {});
      console.log((await ledger.ask('storeState', null)).place);
    });`;
  const { stdout, status } = spawnSync(process.execPath, ['-e', program], { encoding: 'utf8' });
  assert.deepEqual([stdout, status], ['memory\n', 0]);
});
