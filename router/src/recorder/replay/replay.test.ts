import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answerTokens } from './replay.ts';

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
