import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LineSplitter } from './guarded-process.ts';

function linesOf(...parts: string[]): string[] {
  const lines: string[] = [];
  const splitter = new LineSplitter((line) => lines.push(line));
  for (const part of parts) splitter.push(part);
  splitter.end();
  return lines;
}

test('lines end where they end, however they arrive', () => {
  assert.deepEqual(linesOf('a\nb', 'c\n\nd\r', '\ne'), ['a', 'bc', 'd', 'e']);
  assert.deepEqual(linesOf('10%\r20%\r', '30%\r\n'), ['10%', '20%', '30%']);
});

test('a line without an end is dropped at a limit', () => {
  assert.deepEqual(
    linesOf('x'.repeat(10_000), 'x'.repeat(10_000), 'y\n').map((line) => line.length),
    [20_000, 1],
  );
});
