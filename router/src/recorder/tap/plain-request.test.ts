import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isPlainRequest } from './plain-request.ts';
import { readRequest } from '../shared/read-request.ts';

const isPlain = (json: string): boolean => isPlainRequest('generate', Buffer.from(json));

test('one sample of one prompt of ids needs no look before it is answered', () => {
  for (const json of [
    '{"input_ids":[1,2,3]}',
    ' { "input_ids" : [ 1 ] , "sampling_params" : {"temperature":1,"m":{"n":2}} } ',
    '{"stream":true,"input_ids":[7],"sampling_params":{},"n":3}',
  ]) {
    assert.equal(isPlain(json), true, json);
    const request = readRequest('generate', Buffer.from(json))!;
    assert.deepEqual([request.prompts.length, request.samples, request.isList], [1, 1, false]);
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
