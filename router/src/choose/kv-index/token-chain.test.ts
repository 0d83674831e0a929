import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { TokenChain, baseRoot, rootOf } from './token-chain.ts';

function hashOf(tokenIds: Int32Array, blockSize: number, root = baseRoot): string {
  const chain = new TokenChain();
  chain.start(root);
  for (let i = 0; i < tokenIds.length; i += blockSize) chain.next(tokenIds, i, i + blockSize);
  return `${chain.lo} ${chain.hi}`;
}

test('equal tokens have equal hashes, in any array type', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(200_000), { minLength: 4, maxLength: 40 }), (ids) => {
      const tokenIds = Int32Array.from(ids);
      const chain = new TokenChain();
      chain.start(baseRoot);
      chain.next(Int32Array.from([9, ...ids, 9]), 1, ids.length + 1);
      assert.equal(`${chain.lo} ${chain.hi}`, hashOf(tokenIds, ids.length));
    }),
  );
});

test('prompts that differ a little have different hashes', () => {
  const hashes = new Set<string>();
  let count = 0;
  const add = (...ids: number[]): void => {
    hashes.add(hashOf(Int32Array.from(ids), 4));
    count++;
  };
  // One token, two tokens at once, tokens exchanged, a high bit in two places.
  for (let i = 1; i < 20_000; i++) add(1, 2, 3, i, 5, 6, 7, 8);
  for (let i = 1; i < 200; i++) for (let k = 0; k < 200; k++) add(1, 2, 3, 4, i, 6, k, 9);
  for (let bit = 0; bit < 31; bit++) {
    for (let other = 0; other < 31; other++) add(1 << bit, 0, 1 << other, 0, 0, 0, 0, 0);
  }
  add(8, 7, 6, 5, 4, 3, 2, 1);
  assert.equal(hashes.size, count);
  const lows = new Set([...hashes].map((hash) => hash.split(' ')[0]));
  // By chance some of 60,000 hashes of 32 bits are alike: less than half a pair is expected.
  assert.ok(count - lows.size < 6, `${count - lows.size} alike`);
});

test('adapters and salts have roots of their own', () => {
  const roots = [
    rootOf(null, null),
    rootOf('a', null),
    rootOf(null, 'a'),
    rootOf('a', 'a'),
    rootOf('b', null),
    rootOf('', null),
    rootOf(null, ''),
    rootOf('aa', null),
  ];
  assert.equal(new Set(roots.map(({ lo, hi }) => `${lo} ${hi}`)).size, roots.length);
  assert.deepEqual(rootOf('a', 'b'), rootOf('a', 'b'));
});
