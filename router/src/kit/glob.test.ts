import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fitsGlob } from './glob.ts';

test('a star stands for anything or nothing', () => {
  for (const [pattern, text, fits] of [
    ['a.b', 'a.b', true],
    ['a.b', 'axb', false],
    ['*', '', true],
    ['*.gpu.internal', 'a.gpu.internal', true],
    ['*.gpu.internal', 'a.b.gpu.internal', true],
    ['*.gpu.internal', 'gpu.internal', false],
    ['*.gpu.internal', 'a.gpu.internal.evil.com', false],
    ['node-*.east', 'node-1.east', true],
    ['a*a', 'a', false],
    ['a*b*c', 'aXbXc', true],
    ['a*bc*c', 'abc', false],
    ['a**b', 'ab', true],
  ] as const) {
    assert.equal(fitsGlob(pattern, text), fits, `${pattern} ${text}`);
  }
});
