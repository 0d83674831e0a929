import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import { Ledger } from './ledger.ts';
import { serveCalls } from './thread.ts';

test('the thread starts, answers and ends', async () => {
  const ledger = new Ledger({ tokenizerPath: null, dataDir: null }, (error) => assert.fail(error));
  assert.equal(await ledger.ask('close', null), 0);
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

test('a changed body of megabytes is given away by the thread, a small one is copied', () => {
  for (const [bytes, left] of [
    [2_000_000, 0],
    [1_000, 1_000],
  ] as const) {
    const { port1, port2 } = new MessageChannel();
    const body = new Uint8Array(bytes).fill(7);
    serveCalls(port2, { change: () => ({ body }) });
    port1.postMessage([{ id: 1, name: 'change', argument: null }]);
    const asked = receiveMessageOnPort(port2)!.message as unknown;
    port2.emit('message', asked);
    const [reply] = receiveMessageOnPort(port1)!.message as [{ value: { body: Uint8Array } }];
    assert.deepEqual([reply.value.body.length, reply.value.body[0], body.length], [bytes, 7, left]);
    port1.close();
  }
});
