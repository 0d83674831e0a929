import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { blockCount, blockUnits, hashBlocks, hashBytes, unitsOf } from './block-hash.ts';
import { seededRandom } from './rng.ts';

const texts = fc.uint8Array({ maxLength: 9_000 });

function blocksOf(text: Uint8Array, seed?: number): number[] {
  return [...hashBlocks(text, 0, text.length, seed)];
}

test('blocks of 64 up to 4,096 units, then of 512, whole ones only', () => {
  assert.deepEqual([0, 63, 64, 4_095, 4_096, 4_607, 4_608, 204_800].map(blockCount), [0, 0, 1, 63, 64, 64, 65, 456]);
  assert.deepEqual([0, 63, 64, 1_000].map(blockUnits), [64, 64, 512, 512]);
  fc.assert(
    fc.property(fc.nat(3_000_000), (units) => {
      const count = blockCount(units);
      assert.ok(unitsOf(count) <= units && units < unitsOf(count + 1));
      assert.equal(unitsOf(count + 1) - unitsOf(count), blockUnits(count));
    }),
  );
});

test('the same text has the same hashes in every process', () => {
  // Replicas of different versions may compare them: these numbers must never change.
  const text = Buffer.from('All happy families are alike; each unhappy family is unhappy in its own way. '.repeat(2));
  assert.deepEqual(blocksOf(text), [4_145_218_373, 58_021_267]);
  assert.deepEqual(
    [hashBytes([]), hashBytes([Buffer.from('a')]), hashBytes([text])],
    [3_996_725_982, 815_738_474, 3_171_955_171],
  );
});

test('hashes depend on the bytes alone, not on where they lie or what follows', () => {
  fc.assert(
    fc.property(texts, fc.nat(70), fc.uint8Array({ maxLength: 700 }), (text, offset, tail) => {
      const hashes = blocksOf(text);
      const moved = Buffer.concat([new Uint8Array(offset).fill(9), text, tail]);
      assert.deepEqual([...hashBlocks(moved, offset, offset + text.length)], hashes);
      assert.deepEqual([...hashBlocks(moved, offset, moved.length)].slice(0, hashes.length), hashes);
      assert.equal(hashes.length, blockCount(text.length));
    }),
  );
});

test('a byte that changes, changes every hash from its block on and none before', () => {
  fc.assert(
    fc.property(texts, fc.nat(), fc.integer({ min: 1, max: 255 }), (text, place, flip) => {
      fc.pre(text.length > 0);
      const before = blocksOf(text);
      const at = place % text.length;
      const wholeBytes = hashBytes([text]);
      text[at]! ^= flip;
      const after = blocksOf(text);
      for (let i = 0; i < before.length; i++) assert.equal(before[i] === after[i], unitsOf(i + 1) <= at, `block ${i}`);
      assert.notEqual(hashBytes([text]), wholeBytes);
    }),
    { numRuns: 500 },
  );
});

test('another seed gives other hashes', () => {
  const text = Buffer.alloc(640, 'abc');
  const [none, one] = [blocksOf(text), blocksOf(text, 1)];
  assert.equal(none.filter((hash) => one.includes(hash)).length, 0);
  assert.notEqual(hashBytes([text]), hashBytes([text], 1));
});

test('it does not matter how bytes are cut into pieces', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), fc.array(fc.nat(400), { maxLength: 12 }), (text, cuts) => {
      const ends = [...cuts.map((cut) => Math.min(cut, text.length)), text.length].toSorted((a, b) => a - b);
      const pieces = ends.map((end, i) => text.subarray(i === 0 ? 0 : ends[i - 1], end));
      assert.equal(hashBytes(pieces), hashBytes([text]));
    }),
    { numRuns: 500 },
  );
});

test('trailing zeros count', () => {
  const hashes = Array.from({ length: 65 }, (_, length) => hashBytes([new Uint8Array(length)]));
  assert.equal(new Set(hashes).size, 65);
});

test('a flipped bit flips each bit of the hash half of the time', () => {
  const random = seededRandom(5);
  const flips = new Uint32Array(32);
  const rounds = 8_000;
  for (let round = 0; round < rounds; round++) {
    const text = Uint8Array.from({ length: 64 }, () => 32 + random() * 95);
    const before = hashBlocks(text, 0, 64)[0]!;
    text[Math.floor(random() * 64)]! ^= 1 << Math.floor(random() * 8);
    const changed = before ^ hashBlocks(text, 0, 64)[0]!;
    for (let bit = 0; bit < 32; bit++) flips[bit]! += (changed >>> bit) & 1;
  }
  for (const [bit, count] of flips.entries()) {
    // Five standard deviations.
    assert.ok(Math.abs(count / rounds - 0.5) < (5 * 0.5) / Math.sqrt(rounds), `bit ${bit}: ${count} of ${rounds}`);
  }
});

/** Texts that differ in two short fields only, the hardest of what is common: `fill` says what stands in them. */
function* templated(count: number, fill: (i: number) => [string, string], apart: number): Generator<Buffer> {
  for (let i = 0; i < count; i++) {
    const [first, second] = fill(i);
    yield Buffer.from(`What is ${first}${' plus '.padEnd(apart, '.')}${second}?`.padEnd(128, ' Think step by step.'));
  }
}

for (const apart of [6, 9, 12, 14, 28]) {
  test(`prompts that differ in two numbers ${apart} bytes apart spread evenly and don't collide`, () => {
    const count = 40_000;
    const digits = (n: number) => String(n).padStart(3, '0');
    const bins = new Uint32Array(64);
    const seen = new Set<number>();
    for (const text of templated(count, (i) => [digits(i % 200), digits(Math.floor(i / 200))], apart)) {
      const hash = hashBlocks(text, 0, 128)[1]!;
      seen.add(hash);
      bins[hash >>> 26]!++;
    }
    const chiSquare = bins.reduce((sum, n) => sum + (n - count / 64) ** 2 / (count / 64), 0);
    // 99.9 % of chi-square with 63 degrees of freedom.
    assert.ok(chiSquare < 103.4, `chi-square ${chiSquare}`);
    // By chance 0.19 pairs.
    assert.ok(seen.size >= count - 3, `${count - seen.size} collisions`);
  });
}
