import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withRank } from './rank-field.ts';

const changed = (text: string): string => withRank(Buffer.from(text), 3).toString();

test('the rank becomes the first member, and every other byte stays', () => {
  assert.equal(
    changed('\n { "seed": 9007199254740993,"text":"é\\u00e9" }\n'),
    '\n {"data_parallel_rank":3, "seed": 9007199254740993,"text":"é\\u00e9" }\n',
  );
  assert.equal(changed('{}'), '{"data_parallel_rank":3}');
  assert.equal(changed('{ }'), '{"data_parallel_rank":3 }');
});

test('a body that names a rank stays as it is, in whatever place and spelling', () => {
  for (const text of [
    '{"text":"x","data_parallel_rank":7}',
    '{"routed_dp_rank":0}',
    '{"routed_dp_rank":null,"text":"x"}',
    '{"data_parallel_\\u0072ank":1}',
  ]) {
    const body = Buffer.from(text);
    assert.equal(withRank(body, 3), body, text);
  }
  assert.match(changed('{"x":{"routed_dp_rank":1}}'), /^\{"data_parallel_rank":3,/, 'one in a nested object is none');
});

test('what is no JSON object is for the engine to refuse', () => {
  for (const text of ['', '[]', '"{}"', '{"text":', '{"a":1 "b":2}', '\u001f\u008b']) {
    const body = Buffer.from(text);
    assert.equal(withRank(body, 3), body, text);
  }
});
