import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { memoryStore } from '../choose/state.ts';
import type { EngineTable } from './engine-table.ts';
import type { EnginePhase, SwapEngine } from './engine.ts';
import { Ledger, type LedgerEntry } from './ledger.ts';
import { WorkerSet } from './worker-set.ts';

const setOf = (ledger: Ledger, flushed = Promise.resolve()): WorkerSet =>
  new WorkerSet({ snapshots: '/snapshots/{identity}', baseIdentity: 'base', has: () => true }, ledger, {
    parts: {
      log: { info: () => {} },
      live: { current: { swapConcurrency: 0 } },
      state: { flush: () => flushed },
      gate: { changed: () => {} },
    },
    noteWork: () => {},
  } as unknown as EngineTable);

test('an engine that joins during a swap waits for its end, also after a trainer has paused and resumed others', async () => {
  const flushed = Promise.withResolvers<void>();
  const set = setOf(new Ledger(memoryStore().open('swaps'), 'all'), flushed.promise);
  set.signal({ identity: 'step-1', reset: 'all', transition: 'async', mover: 'router' });
  set.hold();
  set.release();
  let isIdle = false;
  void set.untilIdle({} as SwapEngine, new AbortController().signal).then(() => (isIdle = true));
  await turn();
  equal(isIdle, false);
  flushed.resolve();
  await turn();
  equal(isIdle, true);
});

/** A swap that an earlier router left, at two engines. @returns what it is now, and changes the phase of the first engine; the other one has died */
function interrupted(mover: LedgerEntry['mover'], isUndone: boolean, stage: string) {
  const ledger = new Ledger(memoryStore().open('swaps'), 'all');
  const how = { path: null, transition: 'async', reset: 'all', whole: 'step-1' } as const;
  const entry = Object.assign(ledger.add({ ...how, identity: 'step-1', mover }, 0), { isUndone });
  ledger.note(entry, 'first', { stage, error: null, phases: {} });
  ledger.note(entry, 'dead', { stage: 'load', error: null, phases: {} });
  const set = setOf(ledger);
  const engine = (phase: EnginePhase) => ({ phase, swap: null, worker: {}, ranks: new Set() }) as never;
  set.engines.set('dead', engine('registered'));
  return {
    set,
    isOver: () => entry.endedAt !== null && set.running !== entry,
    at: (phase: EnginePhase) => {
      set.engines.set('first', engine(phase));
      set.brought();
    },
  };
}

for (const [mover, isUndone] of [
  ['router', false],
  ['router', true],
  ['trainer', true],
] as const) {
  const what = `${isUndone ? 'an undone' : 'a'} swap by a ${mover}`;
  test(`${what} that an earlier router left is over when it is at work at no engine that answers`, () => {
    const { at, isOver } = interrupted(mover, isUndone, 'load');
    const overs = (['registered', 'warming', 'quarantined'] as const).map((phase) => {
      at(phase);
      return isOver();
    });
    deepEqual(overs, [false, false, true]);
    const serving = interrupted(mover, isUndone, 'load');
    serving.at('serving');
    equal(serving.isOver(), true);
  });
}

test("a trainer's swap that an earlier router left is over with its end, its undoing or when all engines had their end", async () => {
  const { at, isOver, set } = interrupted('trainer', false, 'load');
  at('serving');
  equal(isOver(), false);
  set.endedByTrainer();
  equal(isOver(), true);

  const undone = interrupted('trainer', false, 'done');
  undone.at('serving');
  equal(undone.isOver(), false);
  await undone.set.undo();
  equal(undone.isOver(), true);

  const done = interrupted('trainer', false, 'done');
  done.set.ledger.note(done.set.running!, 'dead', { stage: 'done', error: null, phases: {} });
  done.at('serving');
  equal(done.isOver(), true);
});
