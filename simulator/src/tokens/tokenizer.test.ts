import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../router/test/harness/fast-check.ts';
import { readMessages, renderChat } from './chat-template.ts';
import { decode, encode, endOfTurn, firstWord, piece, vocabSize } from './tokenizer.ts';
import { words } from './words.ts';

test('the vocabulary is full and holds no piece twice', () => {
  assert.equal(words.length, 380);
  assert.equal(new Set(words).size, words.length);
  assert.equal(firstWord + 2 * words.length, vocabSize);
});

test('decode(encode(text)) === text for every well-formed string', () => {
  const text = fc.oneof(
    fc.string({ unit: 'grapheme' }),
    fc.string({ unit: 'binary' }).map((s) => s.toWellFormed()),
    fc.array(fc.constantFrom(...words, ' ', '\n', '<|im_end|>', '<|im', 'é', '😀')).map((parts) => parts.join('')),
  );
  fc.assert(fc.property(text, (s) => assert.equal(decode(encode(s)), s)));
});

test('generated words read back as the ids they came from', () => {
  const ids = fc.array(fc.integer({ min: firstWord, max: firstWord + words.length - 1 }));
  fc.assert(fc.property(ids, (list) => assert.deepEqual(encode(decode(list)), list)));
});

test('joined pieces may read back as other ids, as with real tokenizers', () => {
  const ids = [encode(' of')[0]!, encode('ten')[0]!];
  assert.equal(decode(ids), ' often');
  assert.notDeepEqual(encode(decode(ids)), ids);
});

test('specials are ids of their own and can be left out', () => {
  assert.deepEqual(encode('<|im_start|>a<|im_end|>'), [257, 97, endOfTurn]);
  assert.equal(decode([257, 97, endOfTurn], false), 'a');
  assert.equal(piece(200), '\ufffd');
  assert.equal(piece(5000), '');
});

test('chat renders as ChatML, text parts joined', () => {
  const messages = readMessages([
    { role: 'system', content: 'Be short.' },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b' },
      ],
    },
  ]);
  assert.ok(Array.isArray(messages));
  assert.equal(
    renderChat(messages, { addGenerationPrompt: true, continueFinalMessage: false }),
    '<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n',
  );
  assert.equal(
    renderChat([{ role: 'assistant', content: 'go on' }], {
      addGenerationPrompt: true,
      continueFinalMessage: true,
    }),
    '<|im_start|>assistant\ngo on',
  );
  for (const bad of [undefined, [], [1], [{}], [{ role: 'user', content: 5 }]]) {
    assert.equal(typeof readMessages(bad), 'string');
  }
});
