import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { CaptureScene, tokenizerFolder } from '../../../../test/harness/capture-scene.ts';
import { temporaryFolder } from '../../../../test/harness/temporary-folder.ts';
import { encode } from '../../../../../simulator/src/tokens/tokenizer.ts';
import { MemoryStore } from '../store/memory.ts';
import type { NewestQuery } from '../store/store.ts';
import { ExpertsFiles } from './experts-files.ts';

const said = { ids: encode('Yes.'), logprob: -1 };

test('a turn whose prompt can not be opened is counted, its routed experts are dropped, and the next turn is recorded', async (t) => {
  const dataDir = temporaryFolder(t);
  const files = new ExpertsFiles(dataDir);
  const scene = await CaptureScene.start({ tokenizerPath: tokenizerFolder() }, undefined, files);
  const { calls, known, captures } = scene.captured;
  const parts = () =>
    readdirSync(join(dataDir, 'experts'), { recursive: true }).filter((name) => /\d-\d/.test(String(name)));
  const bytes = new Uint8Array(new SharedArrayBuffer(8)).fill(0x41);
  files.take({ key: 7, cut: 0, form: 'base64', bytes });
  assert.equal(parts().length, 1);
  const { forest } = known()!;
  const insert = forest.insert.bind(forest);
  forest.insert = () => {
    throw new Error('no memory');
  };
  const facts = { session: '', group: '', tenant: '', worker: 'w', model: 'm', path: '/generate' };
  const times = { startedAtMs: 0, ttftMs: 0, generationMs: 0 };
  await captures.end({
    id: 0,
    request: Buffer.from('{"input_ids":[300,301]}'),
    isStream: false,
    isLast: true,
    isAwaited: false,
    answer: [Buffer.from('{}')],
    expertsKey: 7,
    facts: { ...facts, ...times, asked: { before: null, isProof: false, stale: null, ticket: null, changes: [] } },
  });
  const { uncaptured, lastProblem } = await calls.settledStats();
  assert.deepEqual([uncaptured, lastProblem, parts()], [1, 'no memory', []]);
  forest.insert = insert;
  await scene.ask({ prompt: encode('One?'), said });
  assert.equal((await calls.settledStats()).turns, 1);
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
  const asked = scene.ask({ session: 's', prompt: encode('One?'), said });
  const settled = settledStats();
  assert.equal(captureStats().turns, 0);
  mayList.resolve();
  assert.equal((await settled).turns, 1);
  await asked;
});

test('a client that leaves when one of two choices has ended: the other one is a turn too', async () => {
  const scene = await CaptureScene.start({ tokenizerPath: tokenizerFolder() });
  const { captures } = scene.captured;
  const body = Buffer.from(JSON.stringify({ input_ids: encode('ab'), sampling_params: { n: 2 }, stream: true }));
  await captures.begin(1, { dialect: 'generate', tenant: '', session: 's', model: 'm', body });
  const event = (index: number, ids: readonly number[], finish: string | null): string => {
    const info = { completion_tokens: ids.length, finish_reason: finish === null ? null : { type: finish } };
    return `data: ${JSON.stringify({ index, text: '', output_ids: ids, meta_info: info })}\n\n`;
  };
  const name = { session: 's', group: '', tenant: '', worker: 'w', model: 'm', path: '/generate' };
  const asked = { before: null, isProof: false, stale: null, ticket: null, changes: [] };
  const facts = { ...name, startedAtMs: 0, ttftMs: 0, generationMs: 0, asked };
  const end = (isLast: boolean, came: string): Promise<string> => {
    const part = { request: null, isStream: true, isAwaited: false, expertsKey: null, facts };
    return captures.end({ ...part, id: 1, isLast, answer: came === '' ? [] : [Buffer.from(came)] });
  };
  const unfinished = encode(' the of');
  assert.equal(await end(false, event(1, unfinished, null) + event(0, said.ids, 'stop')), '');
  assert.equal(await end(true, ''), '');
  assert.deepEqual(
    scene.turns.map(({ finishReason, outputTokens }) => [finishReason, outputTokens]),
    [
      ['stop', said.ids.length],
      ['abort', unfinished.length],
    ],
  );
});
