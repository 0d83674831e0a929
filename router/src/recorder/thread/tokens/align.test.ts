import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../../test/harness/fast-check.ts';
import { letterOfByte } from '../../../kit/byte-letters.ts';
import { TokenPieces } from './pieces.ts';
import { alignPrompt, alignSampled } from './align.ts';

/** One id a byte, `ab` as 300, and two special tokens. */
const vocab: Record<string, number> = Object.fromEntries(letterOfByte.map((letter, byte) => [letter, byte]));
const json = {
  model: { vocab: { ...vocab, ab: 300 } },
  decoder: { type: 'ByteLevel' },
  added_tokens: [
    { id: 400, content: '<s>', special: true },
    { id: 401, content: '</s>', special: true },
    { id: 402, content: '<tool>', special: false },
  ],
};
const pieces = new TokenPieces(json);

const ids = (...list: (number | string)[]): Int32Array =>
  Int32Array.from(list.flatMap((part) => (typeof part === 'number' ? [part] : [...Buffer.from(part)])));

const prompt = (list: Int32Array, text: string, framing: number[] = []) => {
  const { ends, hiddenBytes } = alignPrompt(pieces, list, Buffer.from(text), framing);
  assert.equal(hiddenBytes, 0);
  return [...ends];
};

/** The same pieces, whose users are never told that tokens have just the text which they stand for. */
class Unspelled extends TokenPieces {
  override spell(): boolean {
    return false;
  }
}
const unspelled = new Unspelled(json);

const sampled = (list: Int32Array, text: string, wasStopped = true) => {
  const aligned = alignSampled(unspelled, list, Buffer.from(text), wasStopped);
  const { spelling } = alignSampled(pieces, list, Buffer.from(text));
  if (spelling !== null) {
    // What a token stands for is what it would have been given.
    assert.equal(aligned.hiddenBytes, 0);
    for (const [i, end] of aligned.ends.entries()) assert.equal(spelling.lengthOf(list, 0, i + 1), end);
  } else assert.equal(list.length > 0 && list.every((id) => id < 300) && String.fromCodePoint(...list) === text, false);
  assert.equal(aligned.ends.at(-1), aligned.text.length);
  return { ends: [...aligned.ends], text: aligned.text.toString(), hidden: aligned.hiddenBytes };
};

test('each token of a prompt has its bytes, tokens before it none', () => {
  assert.deepEqual(prompt(ids('x', 300, 'é', 402), 'xabé<tool>'), [1, 3, 4, 5, 11]);
  assert.deepEqual(prompt(ids(400, 'x'), 'x', [400]), [0, 1]);
  assert.deepEqual(prompt(ids(400, 400, 'x'), '<s>x', [400]), [3, 3, 4], 'one of the two is in the text');
});

test('where a normaliser was at work the rest is one piece', () => {
  assert.deepEqual(prompt(ids('aé', 'b'), 'ae\u0301b'), [1, 1, 1, 5]);
});

test('what stopped an answer is behind its text', () => {
  assert.deepEqual(sampled(ids('x', 401), 'x'), { ends: [1, 5], text: 'x</s>', hidden: 4 });
  assert.deepEqual(sampled(ids('x', 401), 'x</s>'), { ends: [1, 5], text: 'x</s>', hidden: 0 });
  assert.deepEqual(sampled(ids(401), ''), { ends: [4], text: '</s>', hidden: 4 });
  assert.deepEqual(sampled(ids('x', 300, 'c'), 'xa'), { ends: [1, 3, 4], text: 'xabc', hidden: 2 });
});

test('special tokens that are left out in between have no text', () => {
  assert.deepEqual(sampled(ids(400, 'x', 400, 'y'), 'xy'), { ends: [0, 1, 1, 2], text: 'xy', hidden: 0 });
});

test('at the end special tokens are left out too: what stopped the answer is behind them', () => {
  const { ends, hidden } = sampled(ids('x', 400, 400, 401), 'x');
  assert.deepEqual([ends, hidden], [[1, 1, 1, 5], 4]);
  assert.deepEqual(sampled(ids('x', 400), 'x', false), { ends: [1, 1], text: 'x', hidden: 0 }, 'nothing stopped it');
  // What was cut off was a text that began with one.
  assert.deepEqual(sampled(ids('x', 400, 'y'), 'x'), { ends: [1, 4, 5], text: 'x<s>y', hidden: 4 });
});

test('parts of letters are what reads as U+FFFD', () => {
  const [first, second] = [...Buffer.from('é')] as [number, number];
  assert.deepEqual(sampled(ids('x', first, 'y', 401), 'x\ufffdy'), {
    ends: [1, 4, 5, 9],
    text: 'x\ufffdy</s>',
    hidden: 4,
  });
  assert.deepEqual(sampled(ids(first, 400, second, 'y'), 'éy').ends, [1, 1, 2, 3], 'a letter around a special token');
  const [a, b, c] = [...Buffer.from('→')] as [number, number, number];
  assert.deepEqual(sampled(ids(a, b, 'x', c, c, 'y'), '\ufffdx\ufffd\ufffdy').ends, [0, 3, 4, 4, 10, 11]);
  // U+FFFD begins with a byte that may have been sampled.
  assert.deepEqual(sampled(ids(a, 0xef, '.'), '\ufffd\ufffd.').ends, [3, 6, 7]);
  // The engine waits for the rest of a letter.
  assert.deepEqual(sampled(ids(c, 'x', a, b), '\ufffdx').hidden, 2);
  // A stop text is behind what is seen, also after a broken letter.
  assert.deepEqual(sampled(ids(c, 'x', 300, 'y'), '\ufffdx').hidden, 3);
});

test('what decodes to another text than the answer is one piece, but never the stop', () => {
  const [first] = [...Buffer.from('é')] as [number];
  assert.deepEqual(sampled(ids('x', first, 'y', 401), 'x?y').ends, [1, 1, 3, 7]);
});

test('any bytes at all are aligned with the text that they read as', () => {
  const byte = fc.oneof(fc.nat(255), fc.constantFrom(...Buffer.from('aé→👩')));
  fc.assert(
    fc.property(fc.array(byte, { minLength: 1, maxLength: 12 }), (bytes) => {
      const text = Buffer.from(bytes).toString('utf8');
      const { ends, hidden } = sampled(Int32Array.from(bytes), text);
      assert.equal(hidden, 0);
      for (const [i, end] of ends.entries()) {
        const before = Buffer.from(text).subarray(0, end).toString('utf8');
        const isBetween = i + 1 === bytes.length || bytes[i + 1]! >> 6 !== 2;
        if (isBetween && !bytes.includes(0xef))
          assert.equal(before, Buffer.from(bytes.slice(0, i + 1)).toString('utf8'));
      }
    }),
  );
});

test('an unknown spelling: only the whole is known', () => {
  const unknown = new TokenPieces({ model: { vocab: { a: 0, b: 1 } }, decoder: { type: 'WordPiece' } });
  assert.deepEqual([...alignPrompt(unknown, ids(0, 1), Buffer.from('a b'), []).ends], [0, 3]);
  assert.deepEqual([...alignSampled(unknown, ids(0, 1), Buffer.from('a b')).ends], [0, 3]);
});

test('spaces and bytes of Llama 2 are read', () => {
  const llama = new TokenPieces({
    model: { vocab: { '▁Hi': 5, '<0x0A>': 6, '▁x': 7 } },
    normalizer: { type: 'Prepend' },
    decoder: { type: 'Sequence', decoders: [{ type: 'Replace' }, { type: 'ByteFallback' }] },
  });
  assert.equal(llama.prependsSpace, true);
  assert.deepEqual([...alignPrompt(llama, ids(5, 6, 7), Buffer.from('Hi\n x'), []).ends], [2, 3, 5]);
});
