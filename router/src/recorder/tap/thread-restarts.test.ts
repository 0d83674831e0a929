import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { startedThreads } from '../../../test/harness/started-threads.ts';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';
import { until } from '../../../test/harness/within.ts';
import { ThreadEnded } from '../../threads/worker-thread.ts';
import { RecorderThread } from './recorder-thread.ts';
import type { EndedCapture } from '../thread/recorder-calls.ts';
import { ThreadRestarts } from './thread-restarts.ts';

const ENDED_CALL: EndedCapture = {
  kind: 'call',
  id: 0,
  request: new Uint8Array(Buffer.from('{"model":"m"}')),
  isStream: false,
  isLast: true,
  answer: [new Uint8Array(Buffer.from('{"content":[]}'))],
  expertsKey: null,
  facts: {
    session: 's',
    group: '',
    tenant: '',
    worker: '',
    model: '',
    path: '/v1/messages',
    startedAtMs: 0,
    ttftMs: null,
    generationMs: 0,
    asked: { before: null, isProof: false, stale: null, ticket: null, changes: [] },
  },
  isAwaited: false,
  sessionEnd: null,
};

test('a thread that was started again answers when it is prepared, and not without what its plugins need', async (t) => {
  const threads = startedThreads(t);
  const thread = new RecorderThread({ tokenizerPath: null, dataDir: null }, (error) => restarts.died(error));
  const restarts = new ThreadRestarts(thread, pino({ enabled: false }));
  t.after(() => thread.close());
  const mayGoOn = Promise.withResolvers<void>();
  await restarts.prepare(() => (threads.length > 1 ? mayGoOn.promise : Promise.resolve()));
  const end = { session: 's', tenant: '', rewards: { ok: 1 } };
  assert.equal((await thread.ask('sessionEnded', end)).known, 0);
  await threads[0]!.terminate();
  await until('it is started again', () => threads.length > 1);
  await thread.ask('storeState', null);
  await assert.rejects(thread.ask('sessionEnded', end), ThreadEnded);
  await assert.rejects(thread.read('sessionsJson', { limit: 1 }), ThreadEnded);
  mayGoOn.resolve();
  await until('it is prepared', () => !restarts.isAway);
  assert.equal((await thread.ask('sessionEnded', end)).known, 0);
});

test('a thread that cannot be started now is started later', async (t) => {
  const threads = startedThreads(t);
  // As when the process may have no further thread, `new Worker` throws.
  let problem: unknown = null;
  let tries = 0;
  const options = {
    tokenizerPath: null,
    dataDir: null,
    get store() {
      if (problem !== null) tries++;
      return problem as null;
    },
  };
  const thread = new RecorderThread(options, (error) => restarts.died(error));
  const restarts = new ThreadRestarts(thread, pino({ enabled: false }));
  t.after(() => thread.close());
  await thread.ask('storeState', null);
  problem = () => {};
  await threads[0]!.terminate();
  await until('a start has failed', () => tries > 0);
  await assert.rejects(thread.ask('storeState', null), ThreadEnded);
  problem = null;
  await until('it is prepared', () => !restarts.isAway);
  assert.equal(threads.length, 2);
});

test('what a thread records before it turns out that it cannot be prepared is stored', async (t) => {
  const threads = startedThreads(t);
  const thread = new RecorderThread({ tokenizerPath: null, dataDir: temporaryFolder(t) }, (error) =>
    restarts.died(error),
  );
  const restarts = new ThreadRestarts(thread, pino({ enabled: false }));
  t.after(() => thread.close());
  await thread.ask('storeState', null);
  await restarts.prepare(async () => {
    if (threads.length !== 2) return;
    assert.equal((await thread.captureEnded(ENDED_CALL, true))!.problem, null);
    throw new Error('the store is locked');
  });
  await threads[0]!.terminate();
  await until('it is prepared', () => !restarts.isAway);
  assert.equal(threads.length, 3);
  assert.equal((await thread.ask('storeState', null)).turns, 1);
});
