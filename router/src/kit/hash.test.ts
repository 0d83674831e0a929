import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { hash32 } from './hash.ts';

test('a key has one hash of 32 bits, the same in every process', () => {
  // Replicas of different versions share sessions: these numbers must never change.
  assert.deepEqual(['', 'a', 'session-1', 'é'].map(hash32), [2_872_998_923, 444_641_715, 599_268_235, 3_136_788_073]);
  fc.assert(
    fc.property(fc.string(), (key) => {
      const hash = hash32(key);
      assert.equal(hash, hash32(key));
      assert.ok(Number.isInteger(hash) && hash >= 0 && hash <= 0xffff_ffff);
    }),
  );
});

test('keys that differ in one character spread evenly', () => {
  const keys = 32_000;
  const bins = Array.from({ length: 32 }, () => 0);
  for (let i = 0; i < keys; i++) bins[hash32(`trajectory-${i}`) >>> 27]!++;
  const expected = keys / 32;
  const chiSquare = bins.reduce((sum, seen) => sum + (seen - expected) ** 2 / expected, 0);
  // 99.9 % of chi-square with 31 degrees of freedom.
  assert.ok(chiSquare < 61.1, `chi-square ${chiSquare}`);
});

test('hardly any two of a hundred thousand keys share a hash', () => {
  const hashes = new Set(Array.from({ length: 100_000 }, (_, i) => hash32(`k${i}`)));
  // By chance alone 1.2 pairs are expected.
  assert.ok(hashes.size >= 99_990, `${100_000 - hashes.size} collisions`);
});
