import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TokenPieces } from './pieces.ts';

test('ids that no tokenizer has, as anybody may send them, are not remembered', () => {
  const pieces = new TokenPieces({ model: { vocab: { a: 0, b: 1 } }, decoder: { type: 'ByteLevel' } });
  const before = process.memoryUsage().heapUsed;
  for (let id = 2; id < 2_000_000; id++) if (pieces.bytesOf(id * 1_000) !== null) assert.fail(`${id}`);
  assert.ok(process.memoryUsage().heapUsed - before < 16_000_000);
  assert.equal(pieces.bytesOf(0)?.toString(), 'a');
  assert.equal(pieces.areKnown(Int32Array.of(0, 2 ** 31 - 1)), false);
});

test('added tokens are spelled as those of the vocabulary, where it has `▁` for spaces; special ones are literal', () => {
  const added_tokens = [
    { id: 1, content: '▁▁', special: false },
    { id: 2, content: '<end▁of▁turn>', special: true },
  ];
  const model = { vocab: { '▁a': 0 } };
  const textsOf = (decoder: string): unknown[] => {
    const pieces = new TokenPieces({ added_tokens, model, decoder: { type: decoder } });
    return [1, 2].map((id) => pieces.bytesOf(id)?.toString());
  };
  assert.deepEqual(textsOf('ByteFallback'), ['  ', '<end▁of▁turn>']);
  assert.deepEqual(textsOf('ByteLevel'), ['▁▁', '<end▁of▁turn>']);
});
