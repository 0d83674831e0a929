import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dialectOf, dialects } from '../engines/dialects/dialects.ts';
import { Asked } from '../generation/asked.ts';
import type { DialectName as Name } from '../generation/dialect.ts';
import { askedBody, continuedBody, factsOf } from './request.ts';

const read = (name: Name, body: string | Buffer): Asked => Asked.read(dialects[name], Buffer.from(body))!;
const SO_FAR = { ids: [7, 8], promptIds: null };

function continued(form: Name, body: string, soFar: Parameters<typeof continuedBody>[1] = SO_FAR): string {
  return continuedBody(read(form, body), soFar, false).toString();
}

test('the rest is asked for with the tokens so far, and what is left of the limits; all else stays', () => {
  assert.equal(
    continued(
      'generate',
      '{"rid":"r","input_ids":[1, 2],"logprob_start_len":0,"sampling_params":{"sampling_seed":12345678901234567890,"max_new_tokens":9,"min_new_tokens":1}}',
    ),
    '{"rid":"r","input_ids":[1, 2,7,8],"logprob_start_len":-1,"sampling_params":{"sampling_seed":12345678901234567890,"max_new_tokens":7,"min_new_tokens":0}}',
  );
  assert.equal(
    continued('generate', '{"input_ids":[1]}'),
    '{"input_ids":[1,7,8],"sampling_params":{"max_new_tokens":126}}',
  );
  assert.equal(
    continued('inference', '{"token_ids":[1],"sampling_params":{"max_tokens":4,"min_tokens":3,"prompt_logprobs":1}}'),
    '{"token_ids":[1,7,8],"sampling_params":{"max_tokens":2,"min_tokens":1,"prompt_logprobs":null}}',
  );
  assert.equal(
    continued(
      'inference',
      '{"token_ids":[1,2,3],"sampling_params":{"max_tokens":4,"prompt_logprob_token_ids":[[5]],"prompt_logprob_start":1}}',
    ),
    '{"token_ids":[1,2,3,7,8],"sampling_params":{"max_tokens":2,"prompt_logprob_token_ids":null,"prompt_logprob_start":null}}',
  );
  assert.equal(
    continued('completions', '{"prompt":[1],"max_tokens":5,"echo":true,"seed":3}'),
    '{"prompt":[1,7,8],"max_tokens":3,"echo":false,"seed":3,"return_token_ids":true}',
  );
});

test('a text becomes the ids that its engine returned', () => {
  assert.equal(
    continued('completions', '{"model":"m","prompt":"a \\"text\\"","max_tokens":5}', { ids: [7], promptIds: [1, 2] }),
    '{"model":"m","prompt":[1,2,7],"max_tokens":4,"return_token_ids":true}',
  );
});

test('without a limit none is set: vLLM takes null for all that fits', () => {
  assert.equal(
    continued('inference', '{"token_ids":[1],"sampling_params":{"max_tokens":null}}'),
    '{"token_ids":[1,7,8],"sampling_params":{"max_tokens":null}}',
  );
  for (const params of ['', ',"sampling_params":{}', ',"sampling_params":{"temperature":1}']) {
    assert.equal(continued('inference', `{"token_ids":[1]${params}}`), `{"token_ids":[1,7,8]${params}}`);
  }
  assert.equal(
    continued('completions', '{"prompt":[1]}'),
    '{"prompt":[1,7,8],"max_tokens":14,"return_token_ids":true}',
  );
});

test('ids are asked for where the client did not, and all of the text where vLLM keeps some back', () => {
  const body = '{"prompt":[1],"stop":"x"}';
  const asked = read('completions', body);
  assert.equal(
    askedBody(asked, true).toString(),
    '{"prompt":[1],"stop":"x","return_token_ids":true,"include_stop_str_in_output":true}',
  );
  for (const yes of ['true', '1', '"true"', '"Yes"']) {
    const own = Buffer.from(`{"prompt":[1],"return_token_ids":${yes}}`);
    assert.equal(askedBody(Asked.read(dialects.completions, own)!, false), own);
  }
  for (const no of ['null', 'false', '0', '"off"']) {
    const own = askedBody(read('completions', `{"prompt":[1],"return_token_ids":${no}}`), false);
    assert.equal(own.toString(), '{"prompt":[1],"return_token_ids":true}');
  }
});

test('what can not be continued exactly says why', () => {
  const cases: readonly (readonly [Name, string, string | null])[] = [
    ['generate', '{"input_ids":[1]}', null],
    ['generate', '{"text":"a"}', 'prompt'],
    ['generate', '{"input_ids":[[1],[2]]}', 'prompt'],
    ['generate', '{"input_ids":[]}', 'prompt'],
    ['generate', '{"input_ids":[1],"text":"a"}', 'prompt'],
    ['generate', '{"input_ids":[1],"text":null}', null],
    ['generate', '{"input_ids":[1],"sampling_params":[{}]}', 'prompt'],
    ['generate', '{"input_ids":[1],"sampling_params":{"n":2}}', 'samples'],
    ['generate', '{"input_ids":[1],"sampling_params":{"n":1}}', null],
    ['generate', '{"input_ids":[1],"sampling_params":{"json_schema":"{}"}}', 'grammar'],
    ['generate', '{"input_ids":[1],"sampling_params":{"stop_regex":"a+"}}', 'stop_regex'],
    ['generate', '{"input_ids":[1],"sampling_params":{"frequency_penalty":0.1}}', 'penalties'],
    ['generate', '{"input_ids":[1],"sampling_params":{"frequency_penalty":0,"repetition_penalty":1}}', null],
    ['generate', '{"input_ids":[1],"custom_logit_processor":"x"}', 'processors'],
    ['generate', '{"input_ids":[1],"image_data":["a"]}', 'media'],
    ['generate', '{"input_ids":[1],"image_data":[]}', null],
    ['generate', '{"input_ids":[1],"return_hidden_states":true}', 'hidden_states'],
    ['completions', '{"prompt":"a"}', null],
    ['completions', '{"prompt":["a","b"]}', 'prompt'],
    ['completions', '{"prompt":[1],"best_of":2}', 'samples'],
    ['completions', '{"prompt":[1],"use_beam_search":true}', 'beam'],
    ['completions', '{"prompt":[1],"response_format":{"type":"json_object"}}', 'grammar'],
    ['completions', '{"prompt":[1],"response_format":{"type":"text"}}', null],
    ['completions', '{"prompt":[1],"structured_outputs":{"regex":"a"}}', 'grammar'],
    ['inference', '{"token_ids":[1],"sampling_params":{"bad_words":["x"]}}', 'processors'],
    ['inference', '{"token_ids":[1],"features":{"mm":1}}', 'media'],
    ['inference', '{"token_ids":[1],"content_parts":[{"type":"image_url"}]}', 'media'],
    ['inference', '{"token_ids":[1],"sampling_params":{"extra_args":{"x":1}}}', 'processors'],
    ['inference', '{"token_ids":[1],"sampling_params":{"trace_decode_token_ids":[5,6,7]}}', 'processors'],
    ['inference', '{"token_ids":[1],"output_mode":"text"}', 'form'],
    ['inference', '{"token_ids":[1],"output_mode":"tokens"}', null],
    ['generate', '{"input_ids":[1],"return_flat_raw_output_top_logprobs":true}', 'form'],
    // vLLM reads them as 50, 1 and true, SGLang's parameters have no types.
    ['completions', '{"prompt":[1],"max_tokens":"50"}', 'form'],
    ['completions', '{"prompt":[1],"min_tokens":true}', 'form'],
    ['completions', '{"prompt":[1],"include_stop_str_in_output":1}', 'form'],
    ['completions', '{"prompt":[1],"stream_options":{"include_usage":"true"}}', 'form'],
    ['completions', '{"prompt":[1],"return_token_ids":"perhaps"}', 'form'],
    ['completions', '{"prompt":[1],"return_token_ids":null,"max_tokens":null,"echo":null}', null],
    ['inference', '{"token_ids":[1],"sampling_params":{"max_tokens":"50"}}', 'form'],
    ['generate', '{"input_ids":[1],"sampling_params":{"no_stop_trim":"false"}}', 'form'],
  ];
  for (const [form, body, reason] of cases) assert.equal(factsOf(read(form, body)).whyNot, reason, body);
  assert.equal(Asked.read(dialects.generate, Buffer.from('[1]')), null);
  assert.equal(Asked.read(dialects.generate, Buffer.from('{"input_ids":[1')), null);
});

test('paths and prompts', () => {
  assert.equal(dialectOf('/v1/completions?a=b')?.name, 'completions');
  assert.equal(dialectOf('/v1/chat/completions'), null);
  assert.equal(factsOf(read('generate', '{"input_ids": [ 1, 2 ,3 ]}')).promptTokens, 3);
});
