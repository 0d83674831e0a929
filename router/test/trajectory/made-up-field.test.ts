import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { readAnswer } from '../../src/recorder/thread/read/read-answer.ts';
import { generate } from '../../src/engines/dialects/generate.ts';

const answer = {
  text: ' a',
  output_ids: [7],
  meta_info: {
    id: '1',
    finish_reason: { type: 'length', length: 1 },
    prompt_tokens: 1,
    completion_tokens: 1,
    output_token_logprobs: [[-0.5, 7, null]],
    sampled_with: 'step-3',
  },
};

test('a field of an engine that is added in its dialect is on record', () => {
  const [sampled] = readAnswer(generate, false, Buffer.from(JSON.stringify(answer)));
  deepEqual(sampled!.endVersion, 'step-3');
});
