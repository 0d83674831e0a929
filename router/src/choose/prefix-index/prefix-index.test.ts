import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { blockUnits, hashBlocks } from '../../kit/block-hash.ts';
import { seededRandom } from '../../kit/rng.ts';
import { MAX_HOLDERS, PrefixIndex } from './prefix-index.ts';

interface Known {
  slot: number;
  hash: number;
  weight: number;
}

/** What the index says it does, with an array from the newest to the oldest. */
class NaiveIndex {
  entries: Known[] = [];
  readonly maxBlocks: number;

  constructor(maxBlocks: number) {
    this.maxBlocks = maxBlocks;
  }

  of(slot: number): Known[] {
    return this.entries.filter((each) => each.slot === slot);
  }

  has(slot: number, hash: number): boolean {
    return this.entries.some((each) => each.slot === slot && each.hash === hash);
  }

  match(slot: number, hashes: readonly number[]): number {
    const missing = hashes.findIndex((hash) => !this.has(slot, hash));
    return missing < 0 ? hashes.length : missing;
  }

  insert(slot: number, hashes: readonly number[], weightPerUnit: number): void {
    const path = hashes.slice(0, this.maxBlocks).map((hash, i) => {
      const known = this.entries.find((each) => each.slot === slot && each.hash === hash);
      return known ?? { slot, hash, weight: blockUnits(i) * weightPerUnit };
    });
    this.entries = [...path, ...this.entries.filter((each) => !path.includes(each))].slice(0, this.maxBlocks);
  }

  add(slot: number, hash: number, weight: number): void {
    this.delete(slot, hash);
    this.entries = [{ slot, hash, weight }, ...this.entries].slice(0, this.maxBlocks);
  }

  delete(slot: number, hash: number): void {
    this.entries = this.entries.filter((each) => each.slot !== slot || each.hash !== hash);
  }

  trim(slot: number, maxWeight: number): void {
    while (this.weight(slot) > maxWeight && this.of(slot).length > 0) {
      this.entries.splice(this.entries.lastIndexOf(this.of(slot).at(-1)!), 1);
    }
  }

  weight(slot: number): number {
    return this.of(slot).reduce((sum, each) => sum + each.weight, 0);
  }
}

/** A path is named by the branch it takes at each block; a hash depends on all branches up to there, as with texts. */
function pathOf(branches: readonly number[]): number[] {
  let hash = 7;
  return branches.map((branch) => {
    hash = (Math.imul(hash, 5) + branch + 1) >>> 0;
    return hash;
  });
}

/** Hashes of single entries: above all those of paths. */
const singles = 0xffff_ff00;

const slots = [0, 1, 2, 70];
const slot = fc.constantFrom(...slots);
const branches = fc.array(fc.nat(2), { maxLength: 9 });
const single = fc.nat(5).map((n) => singles + n);
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant('insert'), slot, branches, weight: fc.constantFrom(0.25, 1, 1.5) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('add'), slot, hash: single, weight: fc.nat(300) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('delete'), slot, hash: single }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('trim'), slot, weight: fc.nat(1_000) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('drop'), slot }) },
) as fc.Arbitrary<{ do: string; slot: number; branches?: number[]; hash?: number; weight?: number }>;

function holdersOf(index: PrefixIndex, path: readonly number[], wanted = Infinity): number[] {
  const found: number[] = [];
  index.holders(Uint32Array.from(path), wanted, (at) => found.push(at) > 0);
  return found;
}

test('the index does what an array ordered by use does', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 40 }), fc.array(step, { maxLength: 60 }), branches, (max, steps, probe) => {
      const index = new PrefixIndex(max);
      const naive = new NaiveIndex(max);
      const seen = new Set<string>();
      for (const each of steps) {
        const path = pathOf(each.branches ?? []);
        if (each.do === 'insert') {
          index.insert(each.slot, Uint32Array.from(path), each.weight);
          naive.insert(each.slot, path, each.weight!);
          seen.add(each.branches!.join());
        } else if (each.do === 'add') {
          index.add(each.slot, each.hash!, each.weight!);
          naive.add(each.slot, each.hash!, each.weight!);
        } else if (each.do === 'delete') {
          index.delete(each.slot, each.hash!);
          naive.delete(each.slot, each.hash!);
        } else if (each.do === 'trim') {
          index.trim(each.slot, each.weight!);
          naive.trim(each.slot, each.weight!);
        } else {
          index.drop(each.slot);
          naive.trim(each.slot, Number.NEGATIVE_INFINITY);
        }
        assert.equal(index.size, naive.entries.length);
      }
      assert.ok(index.size <= max);
      const paths = [...seen].map((name) => (name === '' ? [] : name.split(',').map(Number)));
      for (const at of slots) {
        assert.equal(index.blocks(at), naive.of(at).length);
        assert.equal(index.weight(at), naive.weight(at));
        for (const path of [probe, ...paths].map(pathOf)) {
          assert.equal(index.match(at, Uint32Array.from(path)), naive.match(at, path));
          const known = path.map((hash) => index.has(at, hash));
          assert.deepEqual(
            known,
            path.map((hash) => naive.has(at, hash)),
          );
          // Prefix-closed: nothing known stands after something unknown.
          assert.ok(!known.some((isKnown, i) => isKnown && i > 0 && !known[i - 1]!));
        }
        for (let n = 0; n <= 5; n++) assert.equal(index.has(at, singles + n), naive.has(at, singles + n));
      }
      for (const path of [probe, ...paths].map(pathOf)) {
        const matches = holdersOf(index, path).map((at) => naive.match(at, path));
        const expected = slots.map((at) => naive.match(at, path)).filter((blocks) => blocks > 0);
        assert.deepEqual(
          matches,
          expected.toSorted((a, b) => b - a),
        );
      }
    }),
    { numRuns: 500 },
  );
});

test('hashes that collide cost accuracy only', () => {
  const hashes = fc.uint32Array({ maxLength: 20, max: 9 });
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 12 }),
      fc.array(fc.tuple(fc.nat(2), hashes), { maxLength: 40 }),
      (max, paths) => {
        const index = new PrefixIndex(max);
        for (const [at, path] of paths) {
          index.insert(at, path);
          assert.equal(index.size, index.blocks(0) + index.blocks(1) + index.blocks(2));
          assert.ok(index.size <= max && index.match(at, path) <= path.length);
        }
        // Whatever the table and the rings know is found and can be taken out again.
        for (let at = 0; at < 3; at++) {
          const found = Array.from({ length: 10 }, (_, hash) => hash).filter((hash) => index.has(at, hash));
          assert.equal(found.length, index.blocks(at));
          for (const hash of found) index.delete(at, hash);
          assert.equal(index.weight(at), 0);
        }
        assert.equal(index.size, 0);
      },
    ),
    { numRuns: 500 },
  );
});

test('a full index stays right through a hundred times its size, on many slots', () => {
  const index = new PrefixIndex(5_000);
  const random = seededRandom(1);
  let last = new Uint32Array();
  for (let i = 0; i < 20_000; i++) {
    last = Uint32Array.from({ length: 40 }, () => random() * 2 ** 32);
    const at = i % 3_000;
    index.insert(at, last, 0.1 + (i % 3) * 0.07);
    if (i % 7 === 0) index.drop(Math.floor(random() * 3_000));
    else assert.equal(index.match(at, last), 40);
  }
  assert.ok(index.size <= 5_000 && index.size > 4_000);
  let sum = 0;
  for (let at = 0; at < 3_000; at++) sum += index.blocks(at);
  assert.equal(sum, index.size);
  for (let at = 0; at < 3_000; at++) {
    index.drop(at);
    assert.equal(index.weight(at), 0);
  }
  assert.equal(index.size, 0);
  assert.equal(index.match(0, last), 0);
});

test('the next turn of a prompt matches the turn before it, and only where that was sent', () => {
  const index = new PrefixIndex(1_000);
  const system = 'You are a careful assistant. '.repeat(20);
  const turn = Buffer.from(`${system}What is 6 times 7?`);
  const next = Buffer.from(`${system}What is 6 times 7? It is 42. And twice that?`);
  const other = Buffer.from(`${system}Name the rivers of Europe. ${'Take your time. '.repeat(50)}`);
  index.insert(3, hashBlocks(turn, 0, turn.length));
  const blocks = Math.floor(turn.length / 64);
  assert.equal(index.match(3, hashBlocks(next, 0, next.length)), blocks);
  assert.equal(index.match(3, hashBlocks(other, 0, other.length)), Math.floor(system.length / 64));
  assert.equal(index.match(2, hashBlocks(next, 0, next.length)), 0);
  assert.equal(index.weight(3), 64 * blocks);
  // Shorter than a block: nothing to know, and nothing breaks.
  const short = hashBlocks(Buffer.from('Hello'), 0, 5);
  index.insert(3, short);
  assert.equal(index.match(3, short), 0);
});

test('of a block that very many slots have, each search shows others, and none that was dropped', () => {
  const index = new PrefixIndex(10_000);
  const shared = pathOf([0, 0, 0]);
  for (let at = 0; at < 200; at++) index.insert(at, Uint32Array.from([...shared, 1_000 + at]));
  const seen = new Set<number>();
  for (let round = 0; round < 200 / (MAX_HOLDERS - 1); round++) {
    const found = holdersOf(index, shared);
    assert.equal(found.length, MAX_HOLDERS);
    for (const at of found) seen.add(at);
  }
  assert.equal(seen.size, 200);
  // The slot with the longest part first, then others until enough were seen.
  assert.equal(holdersOf(index, [...shared, 1_007])[0], 7);
  assert.equal(holdersOf(index, [...shared, 1_007], 1).length, 1);
  for (let at = 0; at < 198; at++) index.drop(at);
  assert.deepEqual(
    holdersOf(index, shared).toSorted((a, b) => a - b),
    [198, 199],
  );
  assert.equal(index.size, 8);
  index.drop(198);
  index.drop(199);
  assert.deepEqual(holdersOf(index, shared), []);
});

test('what was dropped makes room before anything that counts, whoever drops how often', () => {
  const index = new PrefixIndex(100);
  const random = seededRandom(2);
  const pathOfTen = (): Uint32Array => Uint32Array.from({ length: 10 }, () => random() * 2 ** 32);
  const old = pathOfTen();
  index.insert(9, old);
  for (let round = 0; round < 1_000; round++) {
    for (let i = 0; i < 9; i++) index.insert(round % 3, pathOfTen());
    assert.equal(index.size, 100);
    index.drop(round % 3);
    index.drop(round % 3);
    assert.deepEqual([index.size, index.blocks(round % 3), index.weight(round % 3)], [10, 0, 0]);
    // The oldest of all, though the index was full all the time.
    assert.equal(index.match(9, old), 10);
  }
});

test('a path longer than the index keeps its beginning', () => {
  const index = new PrefixIndex(4);
  const path = Uint32Array.from([11, 12, 13, 14, 15, 16]);
  index.insert(0, path);
  assert.equal(index.match(0, path), 4);
  assert.equal(index.size, 4);
  assert.throws(() => new PrefixIndex(0), RangeError);
});
