import assert from 'node:assert/strict';
import { test } from 'node:test';
import { base64Json, inPieces, listJson, numbersJson } from './json-parts.ts';

test('a list of numbers as JSON is that of JSON.stringify, whatever its length', () => {
  for (const length of [0, 1, 4_095, 4_096, 4_097, 10_000]) {
    const numbers = Float64Array.from({ length }, (_, i) => (i % 7 === 3 ? NaN : -i / 3));
    assert.equal([...numbersJson(numbers)].join(''), JSON.stringify(Array.from(numbers)));
  }
});

test('a list of anything as JSON is that of JSON.stringify', () => {
  for (const items of [[], [null], [{ a: [1, 'ä"'] }, null, [[]], 'x']])
    assert.equal([...listJson(items)].join(''), JSON.stringify(items));
});

test('the base64 of bytes is that of the whole, whatever their number', () => {
  for (const length of [0, 1, 2, 49_151, 49_152, 49_153, 200_000]) {
    const bytes = Buffer.alloc(length, 'some bytes');
    assert.equal([...base64Json(bytes)].join(''), JSON.stringify(bytes.toString('base64')));
  }
});

test('the pieces of JSON are its bytes, and none of them is large', () => {
  const items = Array.from({ length: 50_000 }, (_, i) => `é ${i}`);
  const pieces = [...inPieces(listJson(items))];
  assert.equal(Buffer.concat(pieces).toString(), JSON.stringify(items));
  assert.ok(pieces.length > 5 && pieces.every(({ length }) => length < 200_000));
});
