import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dialects } from '../../engines/dialects/dialects.ts';
import type { DialectName } from '../../generation/dialect.ts';
import { askingForIds, isPlainRequest, readRequest, withIds } from './read-request.ts';

const read = (dialect: DialectName, json: string) => readRequest(dialects[dialect], Buffer.from(json));

test('prompts, samples and the model of a request', () => {
  const cases: [DialectName, string, unknown][] = [
    ['generate', '{"text":"a"}', [['a'], 1, ['']]],
    ['generate', '{"text":["a","b"],"sampling_params":{"n":3}}', [['a', 'b'], 3, ['', '']]],
    ['generate', '{"input_ids":[1,2],"text":null,"lora_path":"x"}', [[[1, 2]], 1, ['x']]],
    ['generate', '{"input_ids":[[1],[2]],"sampling_params":[{"n":2},{"n":2}]}', [[[1], [2]], 2, ['', '']]],
    ['generate', '{"text":"a","image_data":[],"video_data":[null],"audio_data":[[],[]]}', [['a'], 1, ['']]],
    ['generate', '{"text":["a","b"],"lora_path":["x",null],"model":"m"}', [['a', 'b'], 1, ['m\nx', 'm']]],
    ['completions', '{"prompt":"a","n":2,"model":"m"}', [['a'], 2, ['m']]],
    ['completions', '{"prompt":[5,6],"echo":false}', [[[5, 6]], 1, ['']]],
  ];
  for (const [dialect, json, expected] of cases) {
    const request = read(dialect, json)!;
    const prompts = request.prompts.map((prompt) => (typeof prompt === 'string' ? prompt : [...prompt]));
    assert.deepEqual([prompts, request.samples, request.models], expected, json);
  }
});

test('a request whose tokens can not be known is not changed', () => {
  const cases: [DialectName, string][] = [
    ['generate', '{}'],
    ['generate', '[1]'],
    ['generate', '{"text":"a"'],
    ['generate', '{"text":"a","input_ids":[1]}'],
    ['generate', '{"text":"a","text":"b"}'],
    ['generate', '{"text":5}'],
    ['generate', '{"text":""}'],
    ['generate', '{"text":["a",[1]]}'],
    ['generate', '{"input_ids":[1.5]}'],
    ['generate', '{"text":"a","image_data":["x"]}'],
    ['generate', '{"text":"a","image_data":[[null],["x"]]}'],
    ['generate', '{"text":"a","image_data":[1]}'],
    ['generate', '{"text":"a","input_embeds":[]}'],
    ['generate', '{"text":"a","sampling_params":{"n":"x"}}'],
    ['completions', '{"prompt":"a","echo":true}'],
    ['completions', '{"prompt":"a","echo":1}'],
    ['completions', '{"prompt":"a","best_of":3}'],
  ];
  for (const [dialect, json] of cases) assert.equal(read(dialect, json), null, json);
});

test('truth values are those that engines take', () => {
  for (const no of ['false', '0', '"no"']) {
    assert.equal(read('completions', `{"prompt":"a","add_special_tokens":${no},"echo":${no}}`)!.addSpecial, false, no);
  }
  for (const yes of ['true', '1', '"yes"']) {
    assert.equal(
      read('completions', `{"prompt":"a","add_special_tokens":${yes},"stream":${yes}}`)!.isStream,
      true,
      yes,
    );
  }
});

test('only its own field is changed', () => {
  const change = (dialect: DialectName, json: string, ...ids: number[][]): string =>
    withIds(
      read(dialect, json)!,
      ids.map((list) => Int32Array.from(list)),
    ).toString();
  assert.equal(
    change('generate', '{"seed":12345678901234567890, "text" : "a\\u00e9" , "x":{"text":1}}', [7, 8]),
    '{"seed":12345678901234567890, "input_ids":[7,8] , "x":{"text":1}}',
  );
  assert.equal(change('generate', '{"text":["a","b"]}', [1], [2, 3]), '{"input_ids":[[1],[2,3]]}');
  assert.equal(change('generate', '{"text":["a"]}', [1]), '{"input_ids":[[1]]}');
  assert.equal(
    change('generate', '{"text":"a","x":1,"input_ids":null}', [1, 2]),
    '{"input_ids":[1,2],"x":1,"text":null}',
  );
  assert.equal(change('generate', '{"input_ids" : null, "text":"a"}', [1]), '{"text":null, "input_ids":[1]}');
  assert.equal(change('generate', '{"t\\u0065xt":"a"}', [1]), '{"input_ids":[1]}');
  assert.equal(
    change('completions', '{"prompt":"a","n":1 }\n', [1]),
    '{"prompt":[1],"n":1 ,"return_token_ids":true}\n',
  );
  const asking = '{"prompt":[1],"return_token_ids":true}';
  assert.equal(askingForIds(read('completions', asking)!).toString(), asking);
});

const isPlain = (json: string): boolean => isPlainRequest(dialects.generate, Buffer.from(json));

test('one sample of one prompt of ids needs no look before it is answered', () => {
  for (const json of [
    '{"input_ids":[1,2,3]}',
    ' { "input_ids" : [ 1 ] , "sampling_params" : {"temperature":1,"m":{"n":2}} } ',
    '{"stream":true,"input_ids":[7],"sampling_params":{},"n":3}',
  ]) {
    assert.equal(isPlain(json), true, json);
    const request = read('generate', json)!;
    assert.deepEqual([request.prompts.length, request.samples], [1, 1]);
  }
});

test('all others do', () => {
  for (const json of [
    '{"text":"a"}',
    '{"text":"a","input_ids":[1]}',
    '{"input_ids":[[1],[2]]}',
    '{"input_ids":[]}',
    '{"input_ids":"1"}',
    '{"input_ids":[1],"sampling_params":{"n":2}}',
    '{"input_ids":[1],"sampling_params":{"\\u006e":2}}',
    '{"input_ids":[1],"sampling_params":[{"n":1}]}',
    '{"input_ids":[',
    '{"input_ids":[   ',
    '[1]',
    '',
    `{"input_ids":[1],"x":"${'x'.repeat(70_000)}"}`,
  ]) {
    assert.equal(isPlain(json), false, json.slice(0, 80));
  }
});
