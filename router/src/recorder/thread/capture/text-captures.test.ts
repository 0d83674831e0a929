import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { CaptureScene, tokenizerFolder } from '../../../../test/harness/capture-scene.ts';
import { othersDuring } from '../../../../test/harness/others-during.ts';
import { temporaryFolder } from '../../../../test/harness/temporary-folder.ts';
import { encode } from '../../../../../simulator/src/tokens/tokenizer.ts';
import { MemoryStore } from '../store/memory.ts';
import type { NewestQuery } from '../store/store.ts';
import { ChoiceDelta } from '../../../engines/dialects/choices.ts';
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
  const end = (isLast: boolean, came: string): Promise<string | null> => {
    const part = { request: null, isStream: true, isAwaited: false, expertsKey: null, facts };
    return captures.end({ ...part, id: 1, isLast, answer: came === '' ? [] : [Buffer.from(came)] });
  };
  const unfinished = encode(' the of');
  assert.equal(await end(false, event(1, unfinished, null) + event(0, said.ids, 'stop')), null);
  assert.equal(await end(true, ''), null);
  assert.deepEqual(
    scene.turns.map(({ finishReason, outputTokens }) => [finishReason, outputTokens]),
    [
      ['stop', said.ids.length],
      ['abort', unfinished.length],
    ],
  );
});

const CHOICES = 8;
const TOKENS = 50;

/** Hands over a stream of completions part by part, a part for each choice that ends, and what comes at the end. */
async function completionsStream(event: (index: number, isEnd: boolean) => object, last: object) {
  const scene = await CaptureScene.start({ tokenizerPath: tokenizerFolder() });
  const { captures } = scene.captured;
  const body = Buffer.from(JSON.stringify({ prompt: encode('ab'), n: CHOICES, stream: true }));
  await captures.begin(1, { dialect: 'completions', tenant: '', session: 's', model: 'm', body });
  const name = { session: 's', group: '', tenant: '', worker: 'w', model: 'm', path: '/v1/completions' };
  const asked = { before: '', isProof: false, stale: '', ticket: 0, changes: [] };
  const facts = { ...name, startedAtMs: 0, ttftMs: 0, generationMs: 0, asked };
  const made: number[] = [];
  const end = async (isLast: boolean, came: string): Promise<void> => {
    const part = { request: null, isStream: true, isAwaited: false, expertsKey: null, facts };
    assert.equal(await captures.end({ ...part, id: 1, isLast, answer: [Buffer.from(came)] }), null);
    made.push(scene.turns.length);
  };
  const line = (value: object): string => `data: ${JSON.stringify(value)}\n\n`;
  const each = Array.from({ length: CHOICES }, (_, index) => index);
  const grown = Array.from({ length: TOKENS }, () => each.map((index) => line(event(index, false))).join('')).join('');
  for (const index of each) await end(false, (index === 0 ? grown : '') + line(event(index, true)));
  await end(true, `${line(last)}data: [DONE]\n\n`);
  return { made, turns: scene.turns };
}

const [token] = encode('x');

test('completions whose choices end one by one: each token is read twice at most', async (t) => {
  const read = t.mock.method(ChoiceDelta.prototype, 'delta').mock;
  const event = (index: number, isEnd: boolean): object => {
    const choice = { index, text: 'x', token_ids: [token], finish_reason: isEnd ? 'length' : null };
    return { choices: [choice], usage: null };
  };
  const { made, turns } = await completionsStream(event, { choices: [], usage: {} });
  assert.deepEqual(made, [1, 2, 3, 4, 5, 6, 7, 8, 8], 'a choice is a turn when it has ended');
  assert.ok(read.callCount() <= 2 * CHOICES * (TOKENS + 1), `${read.callCount()} events`);
  assert.ok(turns.every(({ outputTokens, ids }) => outputTokens === TOKENS + 1 && ids.length === TOKENS + 3));
});

test('the ids of completions that come at the end of the stream are not looked for at each end of a choice', async (t) => {
  const read = t.mock.method(ChoiceDelta.prototype, 'delta').mock;
  const event = (index: number, isEnd: boolean): object => ({
    choices: [{ index, text: 'x', finish_reason: isEnd ? 'length' : null }],
  });
  const ids = Array.from({ length: CHOICES }, () => Array.from({ length: TOKENS + 1 }, () => token));
  const { made } = await completionsStream(event, { choices: [], sglext: { output_ids: ids } });
  assert.deepEqual(made, [0, 0, 0, 0, 0, 0, 0, 0, CHOICES]);
  assert.ok(read.callCount() <= 2 * CHOICES * (TOKENS + 1), `${read.callCount()} events`);
});

test('other calls of the thread run while the tokens of a long text are written as JSON', async (t) => {
  const scene = await CaptureScene.start({ tokenizerPath: tokenizerFolder(), tokenizer: 'js' });
  const text = 'x'.repeat(60_000);
  let got: Awaited<ReturnType<typeof scene.retrieve>>;
  const others = await othersDuring(t, async () => (got = await scene.retrieve(text)));
  assert.deepEqual([got!.tokens.length, got!.loss_mask.length], [60_000, 60_000]);
  assert.ok(others >= 30, `${others} others`);
});
