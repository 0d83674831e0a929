import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { RequestBody, RetryBudget } from '../wire/request-body.ts';
import { readPromptIds } from './prompt-ids.ts';

function bodyOf(...pieces: readonly string[]): RequestBody {
  const body = new RequestBody(new RetryBudget(1e9), () => {});
  for (const piece of pieces) body.push(Buffer.from(piece));
  body.finish();
  return body;
}

const read = (value: unknown, field = 'prompt'): number[] | null => {
  const found = readPromptIds(bodyOf(typeof value === 'string' ? value : JSON.stringify(value)), field);
  return found && [...found.ids];
};

test('ids are read where classify found the prompt', () => {
  const body = { model: 'm', input_ids: [1, 2], token_ids: [3], prompt: [4, 50, 600], max_tokens: 7 };
  assert.deepEqual(read(body, 'input_ids'), [1, 2]);
  assert.deepEqual(read(body, 'token_ids'), [3]);
  assert.deepEqual(read(body, 'prompt'), [4, 50, 600]);
});

test('whatever the ids, the white space and the pieces of the body', () => {
  const space = fc.constantFrom('', '', '', ' ', '\n  ', '\t\r\n');
  const ids = fc.array(fc.tuple(fc.nat(999_999_999), space, space), { minLength: 1, maxLength: 200 });
  fc.assert(
    fc.property(ids, fc.boolean(), fc.array(fc.nat(400)), (sent, isBatch, cuts) => {
      const list = `[${sent.map(([id, before, after]) => before + id + after).join(',')}]`;
      const text = `{"a":"[1]","prompt": ${isBatch ? `[ ${list} , [8]]` : list}}`;
      const ends = [...new Set(cuts), Infinity].toSorted((a, b) => a - b);
      const pieces = ends.map((end, i) => text.slice(ends[i - 1] ?? 0, end)).filter((piece) => piece !== '');
      const found = readPromptIds(bodyOf(...pieces), 'prompt');
      assert.deepEqual(
        [...found!.ids],
        sent.map(([id]) => id),
      );
    }),
  );
});

test('a value that is not a list of ids is ignored', () => {
  for (const prompt of [
    'text',
    ['text'],
    [],
    [[]],
    [1.5],
    [1, -2],
    [1, 'a'],
    [1, null],
    [10 ** 9],
    [[[1]]],
    {},
    null,
    5,
  ]) {
    assert.equal(read({ prompt }), null, JSON.stringify(prompt));
  }
  for (const text of ['', '[1]', '{"prompt":[1,2', '{"prompt":[1,,2]}', '{"prompt":[1,2,]}', '{"prompt":[1 2]}']) {
    assert.equal(read(text), null, text);
  }
  assert.equal(read({ prompt: [1] }, 'input_ids'), null);
  assert.equal(read({ text: [1] }, 'text'), null);
  assert.equal(read({ messages: [1] }, 'messages'), null);
});

test('of a batch the first prompt counts', () => {
  assert.deepEqual(read({ prompt: [[1, 2], [3], 'x'] }), [1, 2]);
});

test('a salt is read with them', () => {
  const saltOf = (body: object): string | null => readPromptIds(bodyOf(JSON.stringify(body)), 'prompt')!.salt;
  assert.equal(saltOf({ prompt: [1] }), null);
  assert.equal(saltOf({ cache_salt: 'sält', prompt: [1] }), 'sält');
  assert.equal(saltOf({ cache_salt: 7, prompt: [1] }), null);
  assert.equal(saltOf({ cache_salt: 'x'.repeat(2_000), prompt: [1] }), null);
});

test('a body of more than a megabyte counts as having no ids', () => {
  const text = (count: number): string => `{"prompt":[${'7,'.repeat(count)}7]}`;
  assert.equal(read(text(520_000))!.length, 520_001);
  assert.equal(read(text(530_000)), null);
});

test('a body that flowed away holds nothing', () => {
  const body = bodyOf('{"prompt":[1]}');
  body.release();
  assert.equal(readPromptIds(body, 'prompt'), null);
});
