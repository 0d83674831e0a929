import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rewardIn } from './outcome.ts';

test('a reward in a header is a finite decimal number', () => {
  const rewards = ['1', '-0.5', '+2.', '.25', '-2e-1', '1E3', ' 1 '];
  assert.deepEqual(rewards.map(rewardIn), [1, -0.5, 2, 0.25, -0.2, 1_000, 1]);
  for (const value of [
    '',
    ' ',
    '\t',
    'much',
    '0x10',
    '0b1',
    'Infinity',
    'NaN',
    'null',
    '1e999',
    '1,5',
    '1 2',
    '.',
    '1_000',
  ])
    assert.equal(rewardIn(value), null, value);
});
