import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Tally } from './tally.ts';

test('sums by name; a name whose sum is 0 is not kept', () => {
  const tally = new Tally();
  assert.equal(tally.largest(), null);
  for (const [name, amount] of [
    ['a', 2],
    ['b', 3],
    ['a', -2],
    ['c', 1],
  ] as const)
    tally.add(name, amount);
  assert.deepEqual([tally.of('a'), tally.of('b'), [...tally.names()], tally.largest()], [0, 3, ['b', 'c'], 'b']);
});
