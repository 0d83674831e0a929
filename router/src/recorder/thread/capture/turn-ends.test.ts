import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CaptureScene, tokenizerFolder } from '../../../../test/harness/capture-scene.ts';
import { encode } from '../../../../../simulator/src/tokens/tokenizer.ts';
import { MemoryStore } from '../store/memory.ts';
import type { NewestQuery } from '../store/store.ts';
import type { Capture } from './capture.ts';
import type { ExpertsFiles } from './experts-files.ts';
import { type EndedTurn, type Open, TurnEnds, openOf } from './turn-ends.ts';

const endedTurn = (parts: Partial<EndedTurn>): EndedTurn => ({
  id: 0,
  request: null,
  isStream: false,
  isLast: true,
  answer: [Buffer.from('{}')],
  expertsKey: null,
  facts: { path: '/generate', tenant: '', session: '', model: '' } as EndedTurn['facts'],
  ...parts,
});

test('the routed experts of a turn whose prompt can not be opened are dropped', async () => {
  const dropped: number[] = [];
  const ends = new TurnEnds({
    capture: () => ({ open: () => Promise.reject(new Error('no memory')) }) as unknown as Capture,
    open: new Map(),
    files: { drop: (key: number) => void dropped.push(key) } as unknown as ExpertsFiles,
    keepsBodies: false,
  });
  await ends.end(endedTurn({ request: Buffer.from('{"input_ids":[1,2]}'), expertsKey: 7 }));
  assert.deepEqual([ends.uncaptured, ends.lastProblem, dropped], [1, 'no memory', [7]]);
});

test('the turn after a capture that can not be dropped is recorded', async () => {
  const request = { dialect: 'generate', models: ['m'], tenant: '', session: '', isStream: false, samples: 1 } as const;
  // Its place can't be released.
  const broken = { end: null } as unknown as Open['prompts'][number];
  const open = new Map([[1, openOf({ ...request, prompts: [broken], request: null })]]);
  const opened: string[] = [];
  const ends = new TurnEnds({
    capture: () => ({ open: (tree: string) => void opened.push(tree) }) as unknown as Capture,
    open,
    files: null,
    keepsBodies: false,
  });
  ends.drop(1);
  await ends.end(endedTurn({ request: Buffer.from('{"input_ids":[1,2]}') }));
  assert.equal(opened.length, 1);
});

test('the counts do not wait for a turn that waits for the store', async () => {
  const mayList = Promise.withResolvers<void>();
  const own = new MemoryStore(1e6);
  const store = Object.assign(new MemoryStore(1e6), {
    async newest(query: NewestQuery) {
      await mayList.promise;
      return own.newest(query);
    },
  });
  const scene = await CaptureScene.start({ tokenizerPath: tokenizerFolder() }, store);
  const { captureStats, settledStats } = scene.captured.calls;
  const asked = scene.ask({ session: 's', prompt: encode('One?'), said: { ids: encode('Yes.'), logprob: -1 } });
  const settled = settledStats();
  assert.equal(captureStats().turns, 0);
  mayList.resolve();
  assert.equal((await settled).turns, 1);
  await asked;
});
