import assert from 'node:assert/strict';
import { test } from 'node:test';
import { numbersJson } from './numbers-json.ts';

test('a list of numbers as JSON is that of JSON.stringify, whatever its length', () => {
  for (const length of [0, 1, 4_095, 4_096, 4_097, 10_000]) {
    const numbers = Float64Array.from({ length }, (_, i) => (i % 7 === 3 ? NaN : -i / 3));
    assert.equal([...numbersJson(numbers)].join(''), JSON.stringify(Array.from(numbers)));
  }
});
