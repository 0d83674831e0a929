import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { splitText } from './split-text.ts';

test('each token has its text', () => {
  assert.deepEqual(splitText('one two', ['one', ' two']), ['one', ' two']);
  assert.deepEqual(splitText('one', ['one', '<|im_end|>']), ['one', ''], 'a special token');
  assert.deepEqual(splitText('aéb', ['a', '\ufffd', '\ufffd', 'b']), ['a', '', '', 'éb'], 'halves of a character');
  assert.deepEqual(splitText('ab', ['x', 'a', 'b']), ['', 'a', 'b'], 'a token that a parser took out');
});

test('parts are one for each token, and together they are the text', () => {
  const token = fc.option(fc.string({ maxLength: 4 }));
  fc.assert(
    fc.property(fc.string(), fc.array(token, { minLength: 1 }), (text, tokens) => {
      const parts = splitText(text, tokens);
      assert.equal(parts.length, tokens.length);
      assert.equal(parts.join(''), text);
    }),
  );
  fc.assert(
    fc.property(fc.array(fc.string({ minLength: 1 }), { minLength: 1 }), (tokens) => {
      assert.deepEqual(splitText(tokens.join(''), tokens), tokens);
    }),
  );
});
