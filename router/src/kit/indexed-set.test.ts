import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { IndexedSet, type IndexedSetMember } from './indexed-set.ts';

class Item implements IndexedSetMember {
  setIndex = -1;
  readonly payload = Array.from({ length: 100 }, () => 0);
}

test('it has what was added and not deleted', () => {
  const bag = new IndexedSet<Item>();
  const items = Array.from({ length: 5 }, () => new Item());
  for (const item of items) bag.add(item);
  bag.add(items[0]!);
  equal(bag.size, 5);
  ok(bag.delete(items[1]!));
  ok(!bag.delete(items[1]!));
  ok(bag.delete(items[4]!));
  equal(bag.size, 3);
  deepEqual(
    items.map((item) => bag.has(item)),
    [true, false, true, true, false],
  );
  bag.add(items[1]!);
  deepEqual(new Set(bag), new Set(items.slice(0, 4)));
});

test('an item of another bag is not in this one', () => {
  const [one, other] = [new IndexedSet<Item>(), new IndexedSet<Item>()];
  const item = new Item();
  one.add(item);
  other.add(new Item());
  ok(!other.has(item));
  ok(!other.delete(item));
  ok(one.has(item));
});

test('who is asked may leave, and so may the others', () => {
  const bag = new IndexedSet<Item>();
  for (let i = 0; i < 10; i++) bag.add(new Item());
  let asked = 0;
  for (const item of bag) {
    asked++;
    bag.delete(item);
  }
  equal(asked, 10);
  equal(bag.size, 0);
});

test('after a full collection nothing of what comes and goes gets old', () => {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as (options?: { type: 'minor' }) => void;
  const oldBytes = (): number =>
    getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')!.space_used_size;
  const bag = new IndexedSet<Item>();
  const present: Item[] = [];
  const turnOver = (rounds: number): void => {
    for (let i = 0; i < rounds; i++) {
      for (let k = 0; k < 1000; k++) {
        const item = new Item();
        bag.add(item);
        present.push(item);
        if (present.length > 32) bag.delete(present.shift()!);
      }
      gc({ type: 'minor' });
    }
  };
  turnOver(5);
  gc();
  const before = oldBytes();
  turnOver(20);
  const grown = oldBytes() - before;
  // All 20,000 together are 18 MB; of a Set nearly all of them are there still.
  ok(grown < 2e6, `${grown} bytes`);
});
