import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { until } from '../../test/harness/within.ts';
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
