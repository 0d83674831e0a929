import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { FairQueue, type Ticket } from './fair-queue.ts';

const drained = <T>(queue: FairQueue<T>): T[] => {
  const out: T[] = [];
  for (let item = queue.next(); item !== null; item = queue.next()) out.push(item);
  return out;
};

test('keys take turns; within a key it is first come first', () => {
  const queue = new FairQueue<string>();
  for (const item of ['a1', 'a2', 'a3', 'b1', 'c1', 'c2']) queue.enter(item, item[0]!);
  assert.equal(queue.size, 6);
  assert.deepEqual(drained(queue), ['a1', 'b1', 'c1', 'a2', 'c2', 'a3']);
  assert.equal(queue.size, 0);
});

test('a request that leaves frees its place once; a key without requests has no turn', () => {
  const queue = new FairQueue<string>();
  const tickets = ['a1', 'a2', 'b1', 'c1'].map((item) => queue.enter(item, item[0]!));
  assert.ok(queue.leave(tickets[0]!));
  assert.ok(!queue.leave(tickets[0]!));
  assert.ok(queue.leave(tickets[2]!));
  assert.equal(queue.size, 2);
  assert.equal(queue.next(), 'a2');
  assert.ok(!queue.leave(tickets[1]!), 'its turn has come');
  assert.deepEqual(drained(queue), ['c1']);
});

test('a key that comes back has its turn after all others', () => {
  const queue = new FairQueue<string>();
  for (const item of ['a1', 'b1', 'c1']) queue.enter(item, item[0]!);
  assert.equal(queue.next(), 'a1');
  queue.enter('a2', 'a');
  assert.deepEqual(drained(queue), ['b1', 'c1', 'a2']);
});

test('a higher priority goes first, and within a priority keys take turns', () => {
  const queue = new FairQueue<string>();
  const tickets = ['a1', 'a2', 'b1'].map((item) => queue.enter(item, item[0]!, -5));
  for (const item of ['c1', 'c2', 'd1']) queue.enter(item, item[0]!, 10);
  queue.enter('e1', 'e');
  assert.ok(queue.leave(tickets[1]!));
  assert.equal(queue.next(), 'c1');
  queue.enter('f1', 'f', 99);
  assert.deepEqual(drained(queue), ['f1', 'd1', 'c2', 'e1', 'a1', 'b1']);
  assert.equal(queue.size, 0);
});

type Step = { enter: string } | { leave: number } | 'next';
const steps = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ enter: fc.constantFrom('a', 'b', 'c', 'd') }) },
    { weight: 1, arbitrary: fc.record({ leave: fc.nat() }) },
    { weight: 3, arbitrary: fc.constant('next' as const) },
  ),
  { maxLength: 120 },
);

test('requests of a key stay in order, each is served once, and turns of two waiting keys differ by one at most', () => {
  fc.assert(
    fc.property(steps, (happenings: readonly Step[]) => {
      const queue = new FairQueue<{ key: string; n: number }>();
      const waiting: Ticket<{ key: string; n: number }>[] = [];
      /** Turns of each pair of keys since both have been waiting without a break. */
      const turns = new Map<string, Map<string, number>>();
      const keysNow = (): Set<string> => new Set(waiting.map(({ item }) => item.key));
      const forget = (): void => {
        const keys = keysNow();
        for (const key of turns.keys()) if (!keys.has(key)) turns.delete(key);
        for (const counts of turns.values()) for (const key of counts.keys()) if (!keys.has(key)) counts.delete(key);
        for (const key of keys) {
          if (!turns.has(key)) turns.set(key, new Map());
          for (const other of keys) if (!turns.get(key)!.has(other)) turns.get(key)!.set(other, 0);
        }
      };
      happenings.forEach((step, n) => {
        if (step === 'next') {
          const item = queue.next();
          if (item === null) assert.equal(waiting.length, 0);
          else {
            const firstOfKey = waiting.findIndex((ticket) => ticket.item.key === item.key);
            assert.equal(waiting[firstOfKey]!.item, item, 'first come first');
            waiting.splice(firstOfKey, 1);
            for (const [other, count] of turns.get(item.key)!) turns.get(item.key)!.set(other, count + 1);
          }
        } else if ('enter' in step) waiting.push(queue.enter({ key: step.enter, n }, step.enter));
        else if (waiting.length > 0) {
          assert.ok(queue.leave(waiting.splice(step.leave % waiting.length, 1)[0]!));
        }
        forget();
        assert.equal(queue.size, waiting.length);
        for (const [key, counts] of turns) {
          for (const [other, count] of counts) {
            assert.ok(Math.abs(count - turns.get(other)!.get(key)!) <= 1, `${key} ${count}, ${other}`);
          }
        }
      });
      assert.equal(drained(queue).length, waiting.length);
    }),
    { numRuns: 300 },
  );
});
