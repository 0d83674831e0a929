import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { U64Table } from './u64-table.ts';

/** Few of them, and some far apart: they meet often, and their places in the table do too. */
const word = fc.oneof(fc.nat(12), fc.constantFrom(0xffff_ffff, 0x8000_0000));

test('it is a map, whatever is put in and taken out', () => {
  const step = fc.record({
    lo: word,
    hi: word,
    value: fc.integer({ min: 1, max: 0xffff_ffff }),
    isRemoved: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 400 }), (steps) => {
      const table = new U64Table(2);
      const model = new Map<string, number>();
      for (const { lo, hi, value, isRemoved } of steps) {
        const key = `${lo} ${hi}`;
        let at = table.find(lo, hi);
        assert.equal(at >= 0, model.has(key));
        if (isRemoved) {
          if (at >= 0) table.remove(at);
          model.delete(key);
        } else {
          if (at < 0) at = table.insert(lo, hi);
          table.cells[at + 2] = value;
          table.cells[at + 3] = value ^ 5;
          model.set(key, value);
        }
      }
      assert.equal(table.size, model.size);
      for (const [key, value] of model) {
        const [lo, hi] = key.split(' ').map(Number) as [number, number];
        const at = table.find(lo, hi);
        assert.deepEqual([table.cells[at + 2], table.cells[at + 3]], [value, (value ^ 5) >>> 0]);
      }
    }),
  );
});

test('it grows and shrinks with what it holds', () => {
  const table = new U64Table(1);
  const empty = table.cells.byteLength;
  for (let i = 0; i < 100_000; i++) {
    const at = table.insert(i, i * 7);
    table.cells[at + 2] = i + 1;
  }
  assert.ok(table.cells.byteLength < 100_000 * 12 * 3);
  for (let i = 0; i < 100_000; i++) assert.equal(table.cells[table.find(i, i * 7) + 2], i + 1);
  for (let i = 0; i < 100_000; i++) table.remove(table.find(i, i * 7));
  assert.equal(table.size, 0);
  assert.equal(table.cells.byteLength, empty);
});
