import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TurnIds } from './turn-id.ts';

test('ids sort by their order, also where the clock is set back', () => {
  const ids = new TurnIds();
  const made = [5_000, 5_000, 7_000, 6_000, 6_500, 7_001].map((nowMs) => ids.next(null, nowMs));
  assert.deepEqual(made.toSorted(), made);
});

test('an id sorts after the one that it continues, of a process with a clock that was ahead', () => {
  const before = [new TurnIds().next(null, 9_000), new TurnIds().next(null, 9_000)].toSorted().at(-1)!;
  const ids = new TurnIds();
  const made = [before, ids.next(before, 1_000), ids.next(null, 1_001), ids.next(before, 1_002)];
  assert.deepEqual(made.toSorted(), made);
});

test('an id of another form puts no id before an earlier one', () => {
  const ids = new TurnIds();
  const made = [ids.next(null, 5_000), ids.next('turn-00000001', 5_000), ids.next('~', 5_000), ids.next(null, 5_002)];
  assert.deepEqual(made.toSorted(), made);
});

test('ids sort by their order where very many have one time', () => {
  const ids = new TurnIds();
  let last = '';
  for (let i = 0; i < 36 ** 4 + 10; i++) {
    const id = ids.next(null, 5_000);
    if (id <= last) assert.fail(`${id} after ${last}`);
    last = id;
  }
});
