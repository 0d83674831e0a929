import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { memoryStore } from '../choose/state.ts';
import type { EngineTable } from './engine-table.ts';
import { Ledger } from './ledger.ts';
import { WorkerSet } from './worker-set.ts';

test('an engine that joins during a swap waits for its end, also after a trainer has paused and resumed others', async () => {
  const flushed = Promise.withResolvers<void>();
  const set = new WorkerSet(
    { snapshots: '/snapshots/{identity}', baseIdentity: 'base', has: () => true },
    new Ledger(memoryStore().open('swaps'), 'all'),
    {
      parts: {
        log: { info: () => {} },
        live: { current: { swapConcurrency: 0 } },
        state: { flush: () => flushed.promise },
        gate: { changed: () => {} },
      },
      noteWork: () => {},
    } as unknown as EngineTable,
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
