import assert from 'node:assert/strict';
import { test } from 'node:test';
import { splitPlugins } from './split-list.ts';

test('spaces and commas outside of options separate plugins', () => {
  for (const [text, entries] of [
    ['', []],
    [' , ', []],
    ['a b,c', ['a', 'b', 'c']],
    ['./a.ts:{"x":1, "y":"b c"},./b.ts  c', ['./a.ts:{"x":1, "y":"b c"}', './b.ts', 'c']],
    ['a:{"x":{"y":[1, 2]}, "z":"}"} b', ['a:{"x":{"y":[1, 2]}, "z":"}"}', 'b']],
    ['a:{"x":"\\" }, {"} b', ['a:{"x":"\\" }, {"}', 'b']],
    // Broken JSON stays one entry, for its reader to refuse.
    ['a:{"x": 1, b', ['a:{"x": 1, b']],
    ['a} b', ['a}', 'b']],
  ] as const) {
    assert.deepEqual(splitPlugins(text), entries, text);
  }
});
