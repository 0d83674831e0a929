import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import type { CallResult } from '../engines/weights.ts';
import { type SwapEffect, type SwapEvent, type SwapState, next, planned } from './plan.ts';

type Order = Parameters<typeof planned>[0];
const order: Order = {
  transition: 'async',
  target: 'new',
  previous: 'old',
  mover: 'router',
  hasTarget: false,
  weights: 'previous',
};

const wordOf = (effect: SwapEffect): string =>
  effect.kind === 'call'
    ? `${effect.step} ${effect.what}`
    : effect.kind === 'holds'
      ? `holds ${effect.what}`
      : effect.kind;

/** Plays a swap whose calls get these results, then all of them 'ok'. */
function play(given: Partial<Order>, results: Record<string, CallResult[]> = {}): { words: string[]; end: SwapState } {
  let state = planned({ ...order, ...given }, 0);
  const words: string[] = [];
  const left = structuredClone(results);
  let event: SwapEvent | null = { kind: 'began' };
  while (event !== null) {
    const step = next(state, event, words.length);
    state = step.state;
    event = null;
    for (const effect of step.effects) {
      words.push(wordOf(effect));
      if (effect.kind === 'call')
        event = { kind: 'answered', result: left[wordOf(effect)]?.shift() ?? 'ok', detail: 'because' };
      if (effect.kind === 'drain') event = { kind: 'drained' };
      if (effect.kind === 'wait') event = { kind: 'waited' };
      if (effect.kind === 'ready') event = { kind: 'moved' };
    }
  }
  return { words, end: state };
}

const usual = ['pause target', 'load target', 'label target', 'holds target', 'resume target', 'open', 'over'];

test('the order of the steps', () => {
  deepEqual(play({}).words, ['close', ...usual]);
  deepEqual(play({ transition: 'sync' }).words, ['close', 'drain', ...usual]);
  deepEqual(play({ mover: 'trainer' }).words, ['close', 'pause target', 'ready', ...usual.slice(2)]);
  deepEqual(play({ hasTarget: true }).words, ['close', 'pause target', ...usual.slice(2)]);
  equal(play({}).end.stage, 'done');
});

test('a pause that failed may have worked: the engine is resumed and keeps its weights', () => {
  const { words, end } = play({}, { 'pause target': ['failed'] });
  deepEqual(words, ['close', 'pause target', 'resume previous', 'open', 'over']);
  deepEqual([end.stage, end.weights, end.error], ['error', 'previous', 'pause: because']);
});

test('an engine without the calls is left alone', () => {
  deepEqual(play({}, { 'pause target': ['refused'] }).words, ['close', 'pause target', 'open', 'over']);
});

test('a failed load is followed by a load of the previous snapshot', () => {
  const { words, end } = play({}, { 'load target': ['failed'] });
  deepEqual(words.slice(3), ['load previous', 'label previous', 'holds previous', 'resume previous', 'open', 'over']);
  deepEqual([end.stage, end.weights, end.error], ['error', 'previous', 'load: because']);
});

test('an engine with unknown weights stays paused and out of routing', () => {
  for (const given of [{ previous: null }, {}]) {
    const { words, end } = play(given, { 'load target': ['failed'], 'load previous': ['failed'] });
    deepEqual(words.slice(-3), ['quarantine', 'open', 'over']);
    equal(end.weights, 'unknown');
  }
});

test('an undone swap of a trainer ends also at an engine that has nothing to go back to', () => {
  const undoneAt = (previous: string | null): { words: string[]; stage: string } => {
    let state = planned(
      { ...order, mover: 'trainer', previous, weights: previous === null ? 'unknown' : 'previous' },
      0,
    );
    for (const event of [{ kind: 'began' }, { kind: 'answered', result: 'ok', detail: '' }] as const)
      ({ state } = next(state, event, 0));
    equal(state.stage, 'load');
    const undone = next(state, { kind: 'undo' }, 0);
    return { words: undone.effects.map(wordOf), stage: undone.state.stage };
  };
  deepEqual(undoneAt('old'), { words: ['load previous'], stage: 'load' });
  deepEqual(undoneAt(null), { words: ['quarantine', 'open', 'over'], stage: 'error' });
});

test('a label that the engine does not take changes nothing', () => {
  const { words, end } = play({}, { 'label target': ['failed', 'failed', 'failed'] });
  equal(words.filter((word) => word === 'label target').length, 3);
  deepEqual([end.stage, end.weights, end.warning], ['done', 'target', 'label: because']);
});

test('resuming is retried without end, and other swaps do not wait for it', () => {
  const { words, end } = play({}, { 'resume target': Array<CallResult>(9).fill('failed') });
  equal(words.filter((word) => word === 'resume target').length, 10);
  const over = words.indexOf('over');
  equal(words.slice(0, over).filter((word) => word === 'resume target').length, 5);
  deepEqual([end.stage, end.weights], ['done', 'target']);
});

test('whatever happens: no unknown weights serve, no engine with known weights stays paused, one step at a time', () => {
  const result = fc.constantFrom<CallResult>('ok', 'ok', 'ok', 'refused', 'failed', 'died');
  const given = fc.record({
    transition: fc.constantFrom<Order['transition']>('async', 'sync'),
    mover: fc.constantFrom<Order['mover']>('router', 'trainer'),
    previous: fc.constantFrom('old', null),
    hasTarget: fc.boolean(),
    weights: fc.constantFrom<Order['weights']>('previous', 'unknown'),
  });
  fc.assert(
    fc.property(
      given,
      fc.array(result, { maxLength: 12 }),
      fc.array(fc.nat(20), { maxLength: 3 }),
      (some, results, undos) => {
        let state = planned({ ...order, ...some }, 0);
        const words: string[] = [];
        let due: SwapEvent | null = { kind: 'began' };
        let isPaused = false;
        let isOpen = true;
        let isQuarantined = false;
        for (let turn = 0; due !== null && turn < 60; turn++) {
          const event: SwapEvent = undos.includes(turn) ? { kind: 'undo' } : due;
          const isUndo = event.kind === 'undo';
          const { stage } = state;
          const step = next(state, event, turn);
          state = step.state;
          // A swap that is undone while it waits has no other event to come.
          if (!isUndo || step.effects.length > 0) due = null;
          for (const effect of step.effects) {
            words.push(wordOf(effect));
            ok(
              due === null || effect.kind === 'over' || effect.kind === 'open',
              `one thing at a time: ${words.join()}`,
            );
            if (effect.kind === 'close') isOpen = false;
            if (effect.kind === 'quarantine') isQuarantined = true;
            if (effect.kind === 'open') {
              isOpen = true;
              ok(isQuarantined || state.weights !== 'unknown', 'only known weights serve');
              ok(isQuarantined || !isPaused, 'what is open is not paused');
            }
            if (effect.kind === 'call') {
              if (effect.step === 'pause') isPaused = true;
              if (effect.step === 'resume') ok(state.weights !== 'unknown', 'only known weights are resumed');
              if (effect.step === 'load') ok(stage === 'pause' || stage === 'load', 'only a paused engine loads');
              const outcome = results.shift() ?? 'ok';
              if (effect.step === 'resume' && outcome === 'ok') isPaused = false;
              if (effect.step === 'pause' && outcome === 'refused') isPaused = false;
              due = { kind: 'answered', result: outcome, detail: 'why' };
            }
            if (effect.kind === 'drain') due = { kind: 'drained' };
            if (effect.kind === 'wait') due = { kind: 'waited' };
            if (effect.kind === 'ready') due = { kind: 'moved' };
          }
        }
        ok(state.stage === 'done' || state.stage === 'error', `it ends: ${words.join()}`);
        ok(isOpen && words.includes('over'));
        equal(isQuarantined, state.weights === 'unknown');
      },
    ),
    { numRuns: 5_000 },
  );
});
