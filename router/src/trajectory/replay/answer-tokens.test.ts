import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answerTokens } from './answer-tokens.ts';

const events = (...list: unknown[]): string =>
  [...list.map((event) => `data: ${JSON.stringify(event)}\n\n`), 'data: [DONE]\n\n'].join('');

test('ids are found in the forms in which engines tell them', () => {
  assert.deepEqual(answerTokens('{"text":"x","output_ids":[1,2],"meta_info":{}}', false), [[1, 2]]);
  assert.deepEqual(answerTokens('{"meta_info":{"output_token_logprobs":[[-0.1,5,null],[-0.2,6,"b"]]}}', false), [
    [5, 6],
  ]);
  assert.deepEqual(answerTokens('{"choices":[{"text":"x","token_ids":[3]}]}', false), [[3]]);
  assert.deepEqual(answerTokens('{"choices":[{"meta_info":{"output_token_logprobs":[[-1,9,null]]}}]}', false), [[9]]);
  for (const none of ['{"choices":[{"text":"x"}]}', '{"choices":[]}', 'null', 'oops', '{}', '[]']) {
    assert.equal(answerTokens(none, false), null, none);
  }
});

test('of several samples all are found, in the order of their numbers', () => {
  assert.deepEqual(answerTokens('[{"output_ids":[1]},{"output_ids":[2,3]}]', false), [[1], [2, 3]]);
  const choices = [
    { index: 1, token_ids: [4] },
    { index: 0, token_ids: [3] },
  ];
  assert.deepEqual(answerTokens(JSON.stringify({ choices }), false), [[3], [4]]);
  const told = (index: number, ids: number[]) => ({
    index,
    output_ids: ids,
    meta_info: { completion_tokens: ids.length },
  });
  assert.deepEqual(answerTokens(events(told(1, [5]), told(0, [7]), told(1, [5, 6]), told(0, [7, 8])), true), [
    [7, 8],
    [5, 6],
  ]);
});

test('streams: of events that hold all before them the last counts, of others all together', () => {
  const told = (n: number) => ({ completion_tokens: n });
  const cumulative = [1, 2, 3].map((n) => ({ output_ids: [7, 8, 9].slice(0, n), meta_info: told(n) }));
  assert.deepEqual(answerTokens(events(...cumulative), true), [[7, 8, 9]]);
  const parts = [7, 8, 9].map((id, i) => ({ output_ids: [id], meta_info: told(i + 1) }));
  assert.deepEqual(answerTokens(events(...parts), true), [[7, 8, 9]]);
  const deltas = [{ choices: [{ token_ids: [7, 8] }] }, { choices: [{ token_ids: [9] }] }, { choices: [], usage: {} }];
  assert.deepEqual(answerTokens(events(...deltas), true), [[7, 8, 9]]);
  assert.deepEqual(answerTokens(events({ output_ids: [7], meta_info: told(1) }), true), [[7]]);
  const atTheEnd = [
    { choices: [{ index: 0, delta: { content: 'x' }, response_token_ids: [7] }] },
    { choices: [], sglext: { output_ids: [[7, 8]] } },
  ];
  assert.deepEqual(answerTokens(events(...atTheEnd), true), [[7, 8]]);
  assert.equal(answerTokens(events({ choices: [{ text: 'x' }] }), true), null);
});
