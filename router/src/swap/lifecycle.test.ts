import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { until } from '../../test/harness/within.ts';
import type { Worker } from '../fleet/worker.ts';
import type { EngineTable } from './engine-table.ts';
import type { SwapEngine } from './engine.ts';
import { Lifecycle } from './lifecycle.ts';

/** @param asked called when the engine is asked what it is */
function scene(asked: () => void) {
  const gate: string[] = [];
  const engine = {
    url: 'http://engine',
    phase: 'serving',
    isDoubted: false,
    isBusy: false,
    isLabelled: true,
    breaks: 0,
    swap: null as { isRunning: boolean; over: Promise<void> } | null,
    ranks: new Set([{}]),
    worker: { pool: { endpoint: {} } },
    watch: { isOpen: true, open: () => Promise.resolve() },
    learn: () => Promise.resolve(asked()),
    fits: () => true,
  };
  const parts = {
    log: { info: () => {}, warn: () => {} },
    gate: { close: () => gate.push('closed'), open: () => gate.push('open') },
    labels: { of: () => ({ stale: null }), nameOf: () => Promise.resolve('step-1') },
  };
  const lifecycle = new Lifecycle({ parts, timeoutMs: 1 } as unknown as EngineTable);
  const doubt = (): void => lifecycle.doubt(engine as unknown as SwapEngine, 'its connection was lost');
  return { engine, gate, doubt };
}

test('an engine whose swap is over and still resumes is checked later, and nothing else waits for it', async () => {
  const { engine, gate, doubt } = scene(() => {});
  Object.assign(engine, { isBusy: true, swap: { isRunning: true, over: Promise.resolve() } });
  doubt();
  await delay(20);
  deepEqual(gate, [], 'the swap has closed it');
  engine.isBusy = false;
  await until('it is checked', () => !engine.isDoubted);
  deepEqual(gate, ['closed', 'open']);
});

for (const [what, disturb] of [
  ['a swap begins during it', (engine: { isBusy: boolean }) => (engine.isBusy = true)],
  ['it may have become another process again', (engine: { breaks: number }) => engine.breaks++],
] as const) {
  test(`a check of an engine is repeated if ${what}`, async () => {
    let asked = 0;
    const { engine, doubt } = scene(() => {
      if (++asked > 1) return;
      disturb(engine);
      setTimeout(() => (engine.isBusy = false), 20);
    });
    doubt();
    await until('it is checked', () => !engine.isDoubted);
    equal(asked, 2);
  });
}

for (const isWatched of [true, false]) {
  const what = isWatched ? 'does not interrupt its load' : 'interrupts its load if its process is not watched';
  test(`a restart that is noticed while the engine is brought in ${what}`, async () => {
    const over = Promise.withResolvers<void>();
    let died = 0;
    const swap = {
      isRunning: true,
      over: over.promise,
      died: () => {
        died++;
      },
    };
    const set = {
      untilIdle: () => Promise.resolve(null),
      bring: () => {
        engine.phase = 'warming';
        return Promise.resolve(swap);
      },
      begin: () => Promise.resolve(),
      brought: () => {},
      ledger: { heldNameOf: () => null, noteHeldName: () => {} },
    };
    const begun = Promise.withResolvers<void>();
    const engine = {
      url: 'http://engine',
      phase: 'registered',
      set,
      swap,
      isBusy: true,
      ranks: new Set(),
      worker: { pool: { endpoint: {} } },
      watch: { isOpen: isWatched, open: () => Promise.resolve(), close: () => {} },
      learn: () => Promise.resolve(),
      isSameProcess: () => Promise.resolve(begun.resolve()),
      forget: () => {},
    };
    const parts = { log: { info: () => {} }, labels: { nameOf: () => Promise.resolve('default') } };
    const table = { parts, timeoutMs: 1, find: () => engine, changed: () => {} };
    const lifecycle = new Lifecycle(table as unknown as EngineTable);
    lifecycle.bring(engine as unknown as SwapEngine, 'registered');
    await begun.promise;
    await until('it loads', () => engine.phase === 'warming');
    lifecycle.restarted({} as Worker);
    equal(died, isWatched ? 0 : 1);
    lifecycle.close();
    over.resolve();
  });
}

test('an engine that could not load is asked again at once when it was restarted', async () => {
  let asked = 0;
  const set = {
    untilIdle: () => Promise.resolve(null),
    bring: () => Promise.resolve({ isRunning: false, hasDied: false, over: Promise.resolve() }),
    brought: () => {},
    ledger: { heldNameOf: () => null, noteHeldName: () => {} },
    begin: () => Promise.resolve(),
  };
  const engine = {
    url: 'http://engine',
    phase: 'quarantined',
    set,
    swap: null,
    ranks: new Set(),
    watch: { isOpen: false, open: () => Promise.resolve(), close: () => {} },
    learn: () => Promise.resolve(asked++),
    isSameProcess: () => Promise.resolve(),
    forget: () => {},
  };
  const parts = { labels: { nameOf: () => Promise.resolve('default') } };
  const table = { parts, timeoutMs: 1, find: () => engine, changed: () => {} };
  const lifecycle = new Lifecycle(table as unknown as EngineTable);
  // All answers come at once: it waits for its next try after these turns.
  const settle = async (): Promise<void> => {
    for (let i = 0; i < 20; i++) await turn();
  };
  lifecycle.bring(engine as unknown as SwapEngine, 'quarantined', true);
  await settle();
  equal(asked, 1);
  lifecycle.restarted({} as Worker);
  await settle();
  deepEqual([asked, engine.phase], [2, 'registered']);
  lifecycle.close();
});

// Health checks learn of it up to an interval later, when the engine may have been brought in long ago.
for (const [what, isOfOneProcess, isOpen] of [
  ['an earlier restart', true, true],
  ['a restart of an engine that is not watched', true, false],
  ['a restart', false, true],
] as const) {
  const ends = !(isOfOneProcess && isOpen);
  test(`${what} that is noticed during a swap ${ends ? 'ends it' : 'does not end it'}`, () => {
    const died: string[] = [];
    const swap = { isRunning: true, isOfOneProcess, died: (why: string) => died.push(why) };
    const engine = { phase: 'serving', isBusy: true, isSure: true, swap, watch: { isOpen }, forget: () => {} };
    const table = { parts: {}, timeoutMs: 1, find: () => engine, changed: () => {} };
    new Lifecycle(table as unknown as EngineTable).restarted({} as Worker);
    deepEqual(died, ends ? ['the engine was restarted'] : []);
  });
}
