import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { axisPx, columnPx } from './widths.ts';

const widthOf = (text: string): number => 7 * text.length;

test('a column is as wide as its longest text, up to a part of the table, and not less than its least width', () => {
  const names = ['http://w1:1', 'http://a-much-longer-name:8000'];
  equal(columnPx(120, names, 2_000, widthOf), 7 * 30 + 26);
  equal(columnPx(120, names, 600, widthOf), 180);
  equal(columnPx(120, ['w1'], 2_000, widthOf), 120);
  equal(columnPx(120, [], 2_000, widthOf), 120);
});

test('an axis is as wide as its longest label', () => {
  equal(axisPx(['0 s', '20 min 20 s'], widthOf), 7 * 11 + 12);
  equal(axisPx(['0 s', '10 s'], widthOf), 56);
  equal(axisPx([], widthOf), 56);
});
