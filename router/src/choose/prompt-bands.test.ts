import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { seededRandom } from '../kit/rng.ts';
import { PromptBands } from './prompt-bands.ts';

/** Bands cut after these lengths were seen. */
function bandsOf(lengths: readonly number[]): PromptBands {
  const bands = new PromptBands(1_000, 0);
  for (const bytes of lengths) bands.see(bytes, 0);
  bands.see(1, 1_000);
  return bands;
}

test('before the first cut everybody takes everything', () => {
  const bands = new PromptBands(1_000, 0);
  assert.deepEqual(bands.membersFor(10, 4), [0, 4]);
  bands.see(10, 999);
  assert.deepEqual(bands.membersFor(10, 4), [0, 4]);
  assert.deepEqual(bands.ends(4), []);
});

test('each member carries the same bytes', () => {
  const random = seededRandom(9);
  // Log-uniform from 100 bytes to 1 MB.
  const lengths = Array.from({ length: 20_000 }, () => Math.round(100 * 10_000 ** random()));
  const bands = bandsOf(lengths);
  const count = 4;
  const loads = Array.from({ length: count }, () => 0);
  for (const bytes of lengths) {
    const [first, end] = bands.membersFor(bytes, count);
    let least = first;
    for (let i = first; i < end; i++) if (loads[i]! < loads[least]!) least = i;
    loads[least]! += bytes;
  }
  const mean = loads.reduce((sum, load) => sum + load, 0) / count;
  for (const load of loads) assert.ok(Math.abs(load / mean - 1) < 0.02, loads.join(' '));
  // Long prompts carry most of the bytes: all short ones fit one member.
  assert.deepEqual(bands.membersFor(1_000, count), [0, 1]);
  assert.deepEqual(bands.membersFor(1_000_000, count), [3, 4]);
});

test('longer prompts never go to earlier members, and there is always one', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 0, max: 5_000_000 }), { maxLength: 50 }),
      fc.array(fc.integer({ min: 0, max: 10_000_000 }), { minLength: 1, maxLength: 50 }),
      fc.integer({ min: 1, max: 9 }),
      (seen, asked, count) => {
        const bands = bandsOf(seen);
        let [lastFirst, lastEnd] = [0, 0];
        for (const bytes of asked.toSorted((a, b) => a - b)) {
          const [first, end] = bands.membersFor(bytes, count);
          assert.ok(0 <= first && first < end && end <= count);
          assert.ok(first >= lastFirst && end >= lastEnd);
          [lastFirst, lastEnd] = [first, end];
        }
        assert.ok(bands.ends(count).length < count);
      },
    ),
    { seed: 4 },
  );
});

test('prompts of one length are shared by all', () => {
  assert.deepEqual(bandsOf([500, 500, 500]).membersFor(500, 8), [0, 8]);
});

test('bands follow what comes', () => {
  const bands = new PromptBands(1_000, 0);
  for (let i = 0; i < 100; i++) bands.see(1_000, 0);
  bands.see(100_000, 1_000);
  const [before] = bands.ends(2);
  for (let atMs = 2_000; atMs < 20_000; atMs += 1_000) for (let i = 0; i < 10; i++) bands.see(100_000, atMs);
  const [after] = bands.ends(2);
  assert.ok(before! < 2_000 && after! > 50_000, `${before} ${after}`);
});
