import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { memoryStore } from '../choose/state.ts';
import type { Logger } from '../observe/log.ts';
import { Ledger } from './ledger.ts';
import { WorkerSet } from './worker-set.ts';

test('an engine that joins during a swap waits for its end, also after a trainer has paused and resumed others', async () => {
  const flushed = Promise.withResolvers<void>();
  const set = new WorkerSet(
    { snapshots: '/snapshots/{identity}', baseIdentity: 'base', has: () => true },
    {
      swap: {} as never,
      ledger: new Ledger(memoryStore().open('swaps'), 'all'),
      log: { info: () => {} } as unknown as Logger,
      concurrency: () => 0,
      flush: () => flushed.promise,
    },
  );
  set.signal({ identity: 'step-1', reset: 'all', transition: 'async', mover: 'router' });
  set.hold();
  set.release();
  let isIdle = false;
  void set.untilIdle().then(() => (isIdle = true));
  await turn();
  equal(isIdle, false);
  flushed.resolve();
  await turn();
  equal(isIdle, true);
});
