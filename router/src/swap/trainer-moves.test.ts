import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import type { VersionLabels } from '../weights/version-labels.ts';
import type { Logger } from '../observe/log.ts';
import { TrainerMoves } from './trainer-moves.ts';
import type { WorkerSet } from './worker-set.ts';

/** What a set of workers does at the begin and the end of a trainer's swap. */
const idle = { untilAsked: () => Promise.resolve(), endedByTrainer: () => {}, flush: () => Promise.resolve() };

test('while engines are paused for a trainer an error is logged every 30 s, and none after the end', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const set: { running: { mover: string; identity: string } | null; engines: Map<string, unknown> } = {
    ...idle,
    running: { mover: 'trainer', identity: 'step-3' },
    engines: new Map(),
  };
  const errors: string[] = [];
  const log = { error: ({ snapshot }: { snapshot: string }, text: string) => errors.push(`${snapshot}: ${text}`) };
  // An earlier router was killed between begin and end.
  const moves = new TrainerMoves(set as unknown as WorkerSet, {} as VersionLabels, log as unknown as Logger);
  const line = 'step-3: engines are paused for a trainer, and POST /swap/end has not come';
  t.mock.timers.tick(29_999);
  deepEqual(errors, []);
  t.mock.timers.tick(30_001);
  deepEqual(errors, [line, line]);
  // No engine is known again yet, so none goes on.
  await moves.end(undefined);
  t.mock.timers.tick(30_000);
  deepEqual(errors, [line, line, line]);
  set.running = null;
  t.mock.timers.tick(90_000);
  deepEqual(errors, [line, line, line]);
  moves.close();
});

test('an end that is repeated is for engines that were not ready before', async () => {
  const engine = (url: string, stage: string) => {
    const swap = {
      isRunning: true,
      state: { stage, error: null },
      order: { mover: 'trainer', was: {} },
      moved: () => {},
    };
    const known = { url, phase: 'warming', snapshot: '', error: null, swap };
    swap.moved = () => {
      swap.state.stage = 'done';
      Object.assign(known, { phase: 'serving', snapshot: 'step-3' });
    };
    return known;
  };
  const [first, late] = [engine('first', 'load'), engine('late', 'pause')];
  const running = { mover: 'trainer', identity: 'step-3' };
  const engines = new Map(Object.entries({ first, late }));
  const set = { running, ledger: { last: running }, refusal: null, engines, ...idle };
  const labels = { nameOf: () => Promise.resolve('step-3') };
  const log = { error: () => {} };
  const moves = new TrainerMoves(
    set as unknown as WorkerSet,
    labels as unknown as VersionLabels,
    log as unknown as Logger,
  );
  const end = async () => {
    const answer = await moves.end('step-3');
    return 'code' in answer ? answer.code : answer.map(({ isReady }) => isReady);
  };
  deepEqual(await end(), [true, false]);
  deepEqual(await end(), [true, false]);
  late.swap.state.stage = 'load';
  deepEqual(await end(), [true, true]);
  moves.close();
});

test('an engine may report the snapshot that the router loaded just before, or what was read before, and nothing else', async () => {
  const answers: unknown[] = [];
  for (const name of ['step-1', 'step-2', 'of another']) {
    const swap = {
      isRunning: true,
      state: { stage: 'load', error: null },
      order: { mover: 'trainer', previous: { identity: 'step-2' }, was: { name: 'step-1' } },
      moved: () => {},
    };
    const engine = { url: 'one', worker: {}, phase: 'warming', snapshot: '', error: null, swap };
    const running = { mover: 'trainer', identity: 'step-3' };
    const set = {
      running: null as object | null,
      ledger: { last: running },
      refusal: null,
      engines: new Map([['one', engine]]),
      ...idle,
      begun: Promise.resolve(),
      signal: () => (set.running = running),
    };
    const labels = { nameOf: () => Promise.resolve(name) };
    const moves = new TrainerMoves(
      set as unknown as WorkerSet,
      labels as unknown as VersionLabels,
      { error: () => {} } as unknown as Logger,
    );
    await moves.begin('step-3', 'async');
    const answer = await moves.end('step-3');
    answers.push('code' in answer ? answer.code : 'ended');
    moves.close();
  }
  deepEqual(answers, ['ended', 'ended', 'swap_conflict']);
});
