import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { digitsOf, valueOf } from './digits.ts';

const near = fc.oneof(fc.integer({ min: 0x2e, max: 0x3b }), fc.nat(255));

test('the digits that a word begins with', () => {
  fc.assert(
    fc.property(fc.array(near, { minLength: 4, maxLength: 4 }), (list) => {
      const bytes = Buffer.from(list);
      const word = bytes.readInt32LE();
      const digits = /^\d*/.exec(bytes.toString('latin1'))![0];
      assert.equal(digitsOf(word), digits.length);
      if (digits !== '') assert.equal(valueOf(word, digits.length), Number(digits));
    }),
    { numRuns: 5_000 },
  );
});
