import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { sortedTogether } from './radix-sort.ts';

// Few and many, of which some are equal.
const number = fc.oneof(
  fc.integer({ min: 0, max: 5 }),
  fc.integer({ min: 0, max: 0xffffffff }),
  fc.constant(0xffffffff),
);

test('numbers are sorted, and equal ones stay in their order', () => {
  fc.assert(
    fc.property(fc.array(number), (numbers) => {
      const [sorted, beside] = sortedTogether(Uint32Array.from(numbers), Uint32Array.from(numbers.keys()));
      const expected = numbers.map((each, i) => [each, i] as const).toSorted(([a, i], [b, j]) => a - b || i - j);
      assert.deepEqual(
        [...sorted],
        expected.map(([each]) => each),
      );
      assert.deepEqual(
        [...beside],
        expected.map(([, i]) => i),
      );
    }),
  );
});
