import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bufferOf } from '../kit/bytes.ts';
import { memoryIn } from '../threads/serve-calls.ts';
import { readFields } from './fields.ts';
import { jsonOf } from './raw-json.ts';

/** Whether both kinds of logprobs are known to be equal. */
function areEqual(parameters: object): boolean {
  const request = { prompt: [1], logprobs: true, temperature: 1, top_p: 1, top_k: 0, ...parameters };
  const fields = readFields(Buffer.from(JSON.stringify(request)), false, true);
  if (fields === null || 'problem' in fields) throw new Error('these are its fields');
  return fields.isFullDistribution;
}

test('raw and processed logprobs are equal only where nothing changes the distribution of sampled tokens', () => {
  for (const parameters of [
    { temperature: 0.7 },
    { top_p: null },
    { top_k: 5 },
    { min_p: 0.1 },
    { presence_penalty: 1 },
    { repetition_penalty: 1.1 },
    { logit_bias: { 5: 100 } },
    { min_tokens: 8 },
    { allowed_token_ids: [1, 2] },
    { bad_words: ['no'] },
    { logits_processors: ['a.b'] },
    { custom_logit_processor: '{}' },
    { vllm_xargs: { a: 1 } },
    { thinking_token_budget: 100 },
  ])
    assert.equal(areEqual(parameters), false, JSON.stringify(parameters));
  for (const parameters of [
    {},
    { top_k: -1, min_p: 0, frequency_penalty: 0.0, repetition_penalty: 1.0, logit_bias: null },
    { min_tokens: 0, bad_words: [], allowed_token_ids: null, vllm_xargs: {} },
    // Engines mask tokens by a grammar before they compute either kind.
    { response_format: { type: 'json_object' }, structured_outputs: { regex: 'a+' } },
  ])
    assert.equal(areEqual(parameters), true, JSON.stringify(parameters));
});

test('a long prompt that is echoed is not transferred to the thread that changes the response: the request keeps it', () => {
  const prompt = 'é'.repeat(100_000);
  const fields = readFields(Buffer.from(JSON.stringify({ prompt, echo: true, raw_output: true })), false, false);
  if (fields === null || 'problem' in fields) throw new Error('these are its fields');
  assert.ok(jsonOf(bufferOf(fields.promptText!)).text() === prompt);
  assert.deepEqual(memoryIn({ fields }), []);
});
