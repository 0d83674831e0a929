import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { RowTable } from './row-table.ts';

test('a reader gets what changed after its tick, and nothing that did not', () => {
  const table = new RowTable();
  table.put('a', '1', 1);
  table.put('b', '1', 1);
  table.put('a', '1', 2);
  table.put('b', '2', 2);
  deepEqual(table.since(-1), { set: ['1', '2'], gone: [] });
  deepEqual(table.since(1), { set: ['2'], gone: [] });
  table.drop('a', 3);
  deepEqual(table.since(2), { set: [], gone: ['a'] });
  deepEqual(table.since(3), { set: [], gone: [] });
  table.put('a', '3', 4);
  deepEqual(table.since(2), { set: ['3'], gone: [] });
});

test('a reader that follows has the rows of the table, whenever it reads', () => {
  const step = fc.record({ key: fc.nat(5), value: fc.option(fc.nat(3), { nil: null }), isRead: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const table = new RowTable();
      const truth = new Map<string, string>();
      const copy = new Map<string, string>();
      let [tick, readTick] = [0, -1];
      const read = (): void => {
        const { set, gone } = table.since(readTick);
        for (const json of set) copy.set((JSON.parse(json) as [string, number])[0], json);
        for (const key of gone) copy.delete(key);
        readTick = tick;
      };
      for (const { key: number, value, isRead } of steps) {
        const key = `k${number}`;
        tick++;
        if (value === null) {
          table.drop(key, tick);
          truth.delete(key);
        } else {
          table.put(key, JSON.stringify([key, value]), tick);
          truth.set(key, JSON.stringify([key, value]));
        }
        if (isRead) read();
      }
      read();
      deepEqual(copy, truth);
    }),
  );
});

test('removals are forgotten after a number of them, and the table says so', () => {
  const table = new RowTable();
  for (let i = 0; i < 30_000; i++) {
    table.put(String(i), '1', i);
    table.drop(String(i), i + 1);
  }
  equal(table.knows(-1), true);
  equal(table.knows(100), false);
  equal(table.knows(29_000), true);
});
