import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { writeFileSync } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';
import { readRecording } from './recording.ts';
import { type Verdict, answerTokens, replay } from './replay.ts';

const CHAT = '/v1/chat/completions';
const COMPLETIONS = '/v1/completions';
const events = (...list: unknown[]): string =>
  [...list.map((event) => `data: ${JSON.stringify(event)}\n\n`), 'data: [DONE]\n\n'].join('');

test('ids are found in the forms in which engines tell them', () => {
  assert.deepEqual(answerTokens('/generate', false, '{"text":"x","output_ids":[1,2],"meta_info":{}}'), [[1, 2]]);
  const older = '{"meta_info":{"output_token_logprobs":[[-0.1,5,null],[-0.2,6,"b"]]}}';
  assert.deepEqual(answerTokens('/generate', false, older), [[5, 6]]);
  assert.deepEqual(answerTokens(COMPLETIONS, false, '{"choices":[{"text":"x","token_ids":[3]}]}'), [[3]]);
  assert.deepEqual(answerTokens(CHAT, false, '{"choices":[{"meta_info":{"output_token_logprobs":[[-1,9,null]]}}]}'), [
    [9],
  ]);
  for (const none of ['{"choices":[{"text":"x"}]}', '{"choices":[]}', 'null', 'oops', '{}']) {
    for (const path of ['/generate', COMPLETIONS, CHAT, '/v1/messages']) {
      assert.deepEqual(answerTokens(path, false, none), [], none);
    }
  }
});

test('of several samples all are found, in the order of their numbers', () => {
  const own = (index: number, ids: number[]) => ({
    index,
    output_ids: ids,
    meta_info: { completion_tokens: ids.length },
  });
  assert.deepEqual(answerTokens('/generate', false, JSON.stringify([own(0, [1]), own(1, [2, 3])])), [[1], [2, 3]]);
  const choices = [
    { index: 1, token_ids: [4] },
    { index: 0, token_ids: [3] },
  ];
  assert.deepEqual(answerTokens(COMPLETIONS, false, JSON.stringify({ choices })), [[3], [4]]);
  const stream = events(own(1, [5]), own(0, [7]), own(1, [5, 6]), own(0, [7, 8]));
  assert.deepEqual(answerTokens('/generate', true, stream), [
    [7, 8],
    [5, 6],
  ]);
});

test('streams: of events that hold all before them the last counts, of others all together', () => {
  const count = (n: number) => ({ completion_tokens: n });
  const cumulative = [1, 2, 3].map((n) => ({ output_ids: [7, 8, 9].slice(0, n), meta_info: count(n) }));
  assert.deepEqual(answerTokens('/generate', true, events(...cumulative)), [[7, 8, 9]]);
  const parts = [7, 8, 9].map((id, i) => ({ output_ids: [id], meta_info: count(i + 1) }));
  assert.deepEqual(answerTokens('/generate', true, events(...parts)), [[7, 8, 9]]);
  const deltas = [{ choices: [{ token_ids: [7, 8] }] }, { choices: [{ token_ids: [9] }] }, { choices: [], usage: {} }];
  assert.deepEqual(answerTokens(COMPLETIONS, true, events(...deltas)), [[7, 8, 9]]);
  const atTheEnd = [
    { choices: [{ index: 0, delta: { content: 'x' } }] },
    { choices: [], sglext: { output_ids: [[7, 8]] } },
  ];
  assert.deepEqual(answerTokens(CHAT, true, events(...atTheEnd)), [[7, 8]]);
  assert.deepEqual(answerTokens(CHAT, true, events({ choices: [{ text: 'x' }] })), []);
});

type Recorded = readonly [finishReason: string | null, ids: readonly number[]];

/** The verdict on a call whose recorded samples end so, if an engine samples these tokens now. */
async function verdictOn(t: TestContext, recorded: readonly Recorded[], now: readonly number[][]): Promise<Verdict> {
  const engine = createServer((asked, answer) => {
    asked.resume();
    const samples = now.map((ids, index) => ({ index, output_ids: ids, meta_info: { completion_tokens: ids.length } }));
    answer.setHeader('content-type', 'application/json').end(JSON.stringify(samples));
  }).listen(0, '127.0.0.1');
  t.after(() => engine.close());
  await once(engine, 'listening');
  const common = { parent: null, path: '/generate', worker: 'w', started_at_ms: 1, ttft_ms: 1, generation_ms: 1 };
  const turns = recorded.map(([finishReason, sampled], i) => {
    return { ...common, id: `turn-${i}`, sampled, finish_reason: finishReason, request: '{"text":"x"}' };
  });
  const file = join(temporaryFolder(t), 'export.jsonl');
  writeFileSync(file, `${JSON.stringify({ session: 's', turns })}\n`);
  const { calls } = await readRecording(file);
  const against = new URL(`http://127.0.0.1:${(engine.address() as AddressInfo).port}`);
  const verdicts: Verdict[] = [];
  await replay(calls, { against, concurrency: 1 }, ({ verdict }) => verdicts.push(verdict));
  assert.equal(verdicts.length, 1);
  return verdicts[0]!;
}

test('a recorded response that was truncated is the same as one that begins with it', async (t) => {
  for (const cut of ['abort', null])
    assert.deepEqual(await verdictOn(t, [[cut, [7, 8]]], [[7, 8, 9]]), { kind: 'same' }, String(cut));
  const whole = await verdictOn(t, [['stop', [7, 8]]], [[7, 8, 9]]);
  assert.deepEqual(whole, { kind: 'different', turn: 'turn-0', at: 2, recorded: -1, now: 9 });
  const other = await verdictOn(t, [['abort', [7, 8]]], [[7, 9, 9]]);
  assert.deepEqual(other, { kind: 'different', turn: 'turn-0', at: 1, recorded: 8, now: 9 });
  const longer = await verdictOn(t, [['abort', [7, 8]]], [[7]]);
  assert.deepEqual(longer, { kind: 'different', turn: 'turn-0', at: 1, recorded: 8, now: -1 });
});

test('of several samples each truncated one is found beside the others, in whatever order', async (t) => {
  const recorded: Recorded[] = [
    ['abort', [7]],
    ['abort', [7, 8]],
    ['stop', [7, 8, 9]],
  ];
  const now = [
    [7, 8, 9],
    [7, 8, 5],
    [7, 4],
  ];
  assert.deepEqual(await verdictOn(t, recorded, now), { kind: 'same' });
  const [first, second] = now;
  assert.deepEqual(await verdictOn(t, recorded, [second!, first!, [6]]), {
    kind: 'different',
    turn: 'turn-0',
    at: 0,
    recorded: 7,
    now: 6,
  });
});
