import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { matches, sortRows, windowOf } from './rows.ts';

test('rows are sorted by number or by text, unknown values last', () => {
  const by = (rows: readonly (string | number | null)[], isDescending: boolean) =>
    sortRows(rows, (row) => row, isDescending);
  deepEqual(by([3, null, 1, 20], false), [1, 3, 20, null]);
  deepEqual(by([3, null, 1, 20], true), [20, 3, 1, null]);
  deepEqual(by(['host10', 'host9', 'host1'], false), ['host1', 'host9', 'host10']);
});

test('rows with equal values keep their order', () => {
  const rows = [
    { id: 'a', n: 1 },
    { id: 'b', n: 1 },
    { id: 'c', n: 0 },
  ];
  deepEqual(
    sortRows(rows, ({ n }) => n, true).map(({ id }) => id),
    ['a', 'b', 'c'],
  );
});

test('a filter matches if all its words are in the text', () => {
  equal(matches('10.0.0.7:8000 serving vllm', 'VLLM serv'), true);
  equal(matches('10.0.0.7:8000 serving vllm', 'vllm draining'), false);
  equal(matches('anything', '  '), true);
});

test('of any number of rows only those near the visible part are drawn', () => {
  const { from, to } = windowOf(10_000, 30, 150_000, 600);
  equal(from <= 5_000 && from > 4_980, true, `${from}`);
  equal(to >= 5_020 && to < 5_040, true, `${to}`);
  deepEqual(windowOf(3, 30, 150_000, 600), { from: 0, to: 3 });
  deepEqual(windowOf(0, 30, 0, 600), { from: 0, to: 0 });
});
