import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { decodeBody, prefillBody } from './vllm-bodies.ts';

const prefill = (path: string, body: string) => prefillBody(path, Buffer.from(body), '{"keep":1}')?.toString();
const decode = (path: string, body: string) => decodeBody(path, Buffer.from(body), '{"get":1}')?.toString();
const GENERATE = '/inference/v1/generate';

test('of members with one name the last counts, for the engine and here', () => {
  equal(
    prefill('/v1/completions', '{"max_tokens":5,"stream":true,"max_tokens":6,"stream":true}'),
    '{"max_tokens":5,"stream":true,"max_tokens":1,"stream":false,"min_tokens":1,"kv_transfer_params":{"keep":1}}',
  );
  equal(
    decode('/v1/completions', '{"kv_transfer_params":1,"prompt_logprobs":2,"kv_transfer_params":null}'),
    '{"kv_transfer_params":1,"prompt_logprobs":null,"kv_transfer_params":{"get":1}}',
  );
});

test('names may be spelled with escapes', () => {
  equal(
    prefill('/v1/responses', '{"max\\u005foutput_tokens":7}'),
    '{"max\\u005foutput_tokens":1,"stream":false,"kv_transfer_params":{"keep":1}}',
  );
});

test('/inference/v1/generate has its bounds and its questions in an object of their own', () => {
  equal(
    prefill(GENERATE, '{"sampling_params": {} ,"stream_options":{"include_usage":true}}'),
    '{"sampling_params": {"max_tokens":1,"min_tokens":1},"stream":false,"kv_transfer_params":{"keep":1}}',
  );
  equal(
    decode(
      GENERATE,
      '{"sampling_params":{"prompt_logprobs":1,"prompt_logprob_token_ids":[[1]],"prompt_logprob_start":2,"seed":18446744073709551615}}',
    ),
    '{"sampling_params":{"prompt_logprobs":null,"prompt_logprob_token_ids":null,"prompt_logprob_start":null,"seed":18446744073709551615},"kv_transfer_params":{"get":1}}',
  );
  equal(decode(GENERATE, '{"sampling_params":{"n":1}}'), '{"sampling_params":{"n":1},"kv_transfer_params":{"get":1}}');
  // Not what it should be: the engine says so.
  equal(decode(GENERATE, '{"sampling_params":7}'), '{"sampling_params":7,"kv_transfer_params":{"get":1}}');
});

test('what is no object has no body', () => {
  for (const body of ['', '[]', '{"a":']) {
    equal(prefill('/v1/completions', body), undefined);
    equal(decode('/v1/completions', body), undefined);
  }
  equal(prefill(GENERATE, '{"sampling_params":7}'), undefined);
});

test('whatever the object: a reader finds the changes and nothing else', () => {
  const names = fc.constantFrom(
    'max_tokens',
    'min_tokens',
    'stream',
    'stream_options',
    'max_completion_tokens',
    'x',
    'n',
  );
  const objects = fc.dictionary(names, fc.jsonValue(), { maxKeys: 7 });
  fc.assert(
    fc.property(objects, fc.constantFrom('', ' ', '\n\t'), (object, space) => {
      const body = JSON.stringify(object, null, space);
      const { stream_options: _, ...plain } = JSON.parse(body) as Record<string, unknown>;
      const later = 'max_completion_tokens' in plain ? { max_completion_tokens: 1 } : {};
      const changes = { max_tokens: 1, min_tokens: 1, stream: false, kv_transfer_params: { keep: 1 } };
      deepEqual(JSON.parse(prefill('/v1/chat/completions', body)!), { ...plain, ...later, ...changes });
    }),
    { numRuns: 300 },
  );
});
