import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import type { EngineKind } from '../engines/engine.ts';
import { EngineSwap } from './engine-swap.ts';
import type { EngineTable } from './engine-table.ts';
import type { Worker } from '../fleet/worker.ts';
import { SwapEngine } from './engine.ts';
import type { ProcessWatch } from './process-watch.ts';
import type { WorkerSet } from './worker-set.ts';

/** A swap of an engine whose kind was forgotten. @param kind what it says when it is asked; null: it does not answer */
async function swapOf(kind: EngineKind | null) {
  const stages: string[] = [];
  const gate = { close: () => {}, open: () => {} };
  const table = {
    parts: { gate },
    staged: (_: unknown, { state }: EngineSwap) => void stages.push(state.stage),
    lost: () => {},
  } as unknown as EngineTable;
  const engine = {
    url: 'http://a:1',
    ranks: new Set(),
    breaks: 0,
    kind: null as EngineKind | null,
    learn(this: { kind: EngineKind | null }) {
      if (kind === null) return Promise.reject(new Error('refused'));
      this.kind = kind;
      return Promise.resolve();
    },
  } as unknown as SwapEngine;
  const target = { identity: 'v1', path: '/v1', under: null };
  const how = {
    transition: 'async',
    drains: false,
    mover: 'router',
    weights: 'unknown',
    hasTarget: false,
    was: {},
  } as const;
  const swap = new EngineSwap(engine, { ...how, target, previous: null }, table);
  swap.begin();
  await swap.over;
  return { stages, error: swap.state.error, hasDied: swap.hasDied };
}

test('an engine whose kind is not known any more is asked what it is', async () => {
  const { error } = await swapOf('openai');
  equal(error, 'pause: an engine of the kind openai cannot replace its weights (http://a:1)');
});

test('one that does not answer has died: it is brought in when it is back, without a pause', async () => {
  const { stages, ...result } = await swapOf(null);
  deepEqual(result, { error: 'pause: it does not answer (http://a:1)', hasDied: true });
  deepEqual(stages, ['pause', 'error'], 'each stage once');
});

test('an engine that is found restarted while it is resumed: its kind is not known, and the swap has ended', async () => {
  const pauses = { begin: () => () => {} };
  const table = {
    parts: { gate: { close: () => {}, open: () => {} }, watch: { pauses } },
    staged: () => {},
    lost: () => {},
  } as unknown as EngineTable;
  const asked: string[] = [];
  const { promise: resumed, resolve } = Promise.withResolvers<void>();
  const engine = {
    url: 'http://a:1',
    ranks: new Set(),
    breaks: 0,
    kind: 'sglang' as EngineKind | null,
    isLabelled: true,
    watchAtOnce: () => Promise.resolve(),
    worker: {
      asker: () => () => Promise.reject(new Error('not asked')),
      post(path: string) {
        asked.push(path);
        if (asked.length === 1) return Promise.reject(new Error('the connection broke'));
        engine.kind = null;
        engine.breaks++;
        swap.died('the engine was restarted');
        setImmediate(() => setImmediate(resolve));
        return Promise.resolve({ status: 200, text: '' });
      },
    },
  };
  const [target, previous] = ['v2', 'v1'].map((identity) => ({ identity, path: `/${identity}`, under: null }));
  const how = {
    transition: 'async',
    drains: false,
    mover: 'router',
    weights: 'previous',
    hasTarget: false,
    was: {},
  } as const;
  const order = { ...how, target: target!, previous: previous! };
  const swap: EngineSwap = new EngineSwap(engine as unknown as SwapEngine, order, table);
  swap.begin();
  await swap.over;
  // What the call does with its answer: nothing may be thrown.
  await resumed;
  deepEqual(asked, ['/pause_generation', '/continue_generation']);
  deepEqual([swap.state.stage, swap.hasDied], ['error', true]);
});

test('what an engine sampled while its process was not watched counts as of unknown weights when a swap begins', async () => {
  const engine = new SwapEngine('http://a:1', {} as WorkerSet);
  engine.add({ pool: { endpoint: {} } } as Worker);
  const opened: boolean[] = [];
  const watch = { isOpen: false, open: (_: unknown, isAtOnce: boolean) => Promise.resolve(opened.push(isAtOnce)) };
  engine.watch = watch as unknown as ProcessWatch;
  await engine.watchAtOnce();
  deepEqual([opened, engine.breaks], [[true], 1], 'it could not be opened');
  watch.isOpen = true;
  await engine.watchAtOnce();
  deepEqual([opened.length, engine.breaks], [1, 1]);
});
