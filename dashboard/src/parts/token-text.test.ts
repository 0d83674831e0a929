import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { exactText, partsOf } from './token-text.ts';

const shown = (...token: Parameters<typeof partsOf>): string =>
  partsOf(...token)
    .map(({ text, isSign }) => (isSign ? `[${text}]` : text))
    .join('');

test('a token is shown as its text, with signs for what has no shape', () => {
  equal(shown(' the', 1), ' the');
  equal(shown('}\n\n  ', 1), '}[↵\n↵\n]  ');
  equal(shown('\t\0\u200b\u00a0', 1), '[⇥U+0000U+200BU+00A0]');
  equal(shown('\u202eabc', 1), '[U+202E]abc');
  equal(shown('é👩', 1), 'é👩');
});

test('bytes that are no text are shown as bytes, and unknown texts as ids', () => {
  equal(shown([0xe2, 0x9c], 1), '[E2 9C]');
  equal(shown([0x0a], 1), '[0A]');
  equal(shown(null, 345), '[#345]');
  equal(shown('', 345), '[#345]');
});

test('the exact text', () => {
  deepEqual([' a\n"', [0xe2], null].map(exactText), ['" a\\n\\""', 'bytes E2', 'text unknown']);
});
