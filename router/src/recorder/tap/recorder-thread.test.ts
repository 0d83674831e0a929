import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { RecorderThread } from './recorder-thread.ts';

test('turns that end after their thread did are counted', async () => {
  const died = Promise.withResolvers<Error>();
  const thread = new RecorderThread({ dataDir: '/dev/null', store: 'sqlite', tokenizerPath: null }, died.resolve);
  await died.promise;
  const facts = { session: '', group: '', tenant: '', worker: '', model: '', path: '' };
  const asked = { before: null, isProof: false, stale: null, ticket: null, changes: [] };
  const times = { startedAtMs: 0, ttftMs: 0, generationMs: 0, asked };
  const answer = [Buffer.from('{}')];
  const turn = {
    kind: 'text' as const,
    id: 1,
    request: null,
    isStream: false,
    isLast: true,
    answer,
    expertsKey: null,
    sessionEnd: null,
    facts: { ...facts, ...times },
  };
  assert.equal(thread.captureEnded({ ...turn, isAwaited: false }, false), null);
  const { isStored } = (await thread.captureEnded({ ...turn, isAwaited: true }, false))!;
  assert.equal(isStored, false);
  assert.equal(thread.missed, 2);
});

test('the thread starts, answers and ends', async () => {
  const thread = new RecorderThread({ tokenizerPath: null, dataDir: null }, (error) => assert.fail(error));
  assert.equal(await thread.ask('close', null), 0);
  await thread.close();
  await assert.rejects(thread.ask('close', null), /ended/);
});

test('a process that waits for nothing but the thread waits, and ends afterwards', () => {
  const thread = new URL('./recorder-thread.ts', import.meta.url).href;
  const program = `
    import(${JSON.stringify(thread)}).then(async ({ RecorderThread }) => {
      const thread = new RecorderThread({ tokenizerPath: null, dataDir: null }, () => {});
      console.log((await thread.ask('storeState', null)).place);
    });`;
  const { stdout, status } = spawnSync(process.execPath, ['-e', program], { encoding: 'utf8' });
  assert.deepEqual([stdout, status], ['memory\n', 0]);
});
