import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../router/test/harness/fast-check.ts';
import { KvCache } from './kv-cache.ts';

test('forgets the least recently released block first, and a prefix after its continuation', () => {
  const cache = new KvCache(3);
  const [a, b, c] = [cache.allocate()!, cache.allocate()!, cache.allocate()!];
  assert.equal(cache.allocate(), undefined);
  cache.publish(a, 1);
  cache.publish(b, 2);
  cache.publish(c, 3);
  cache.release([c]);
  cache.release([a, b]);
  assert.deepEqual(cache.match([1, 2], 2), [a, b]);
  assert.equal(cache.allocate(), c);
  assert.equal(cache.allocate(), b);
  assert.deepEqual(cache.match([1, 2], 2), [a]);
});

test('a hit takes a block off the free list and back to its end', () => {
  const cache = new KvCache(2);
  const [a, b] = [cache.allocate()!, cache.allocate()!];
  cache.publish(a, 1);
  cache.publish(b, 2);
  cache.release([a]);
  cache.release([b]);
  cache.hold(cache.match([1], 1));
  assert.equal(cache.freeCount, 1);
  cache.release([a]);
  assert.equal(cache.allocate(), b);
});

test('a key known already keeps its first block', () => {
  const cache = new KvCache(2);
  const [a, b] = [cache.allocate()!, cache.allocate()!];
  cache.publish(a, 1);
  cache.publish(b, 1);
  assert.deepEqual(cache.match([1], 1), [a]);
});

test('flush forgets prefixes and keeps holds; releasing too often is an error', () => {
  const cache = new KvCache(2);
  const a = cache.allocate()!;
  cache.publish(a, 1);
  cache.flush();
  assert.deepEqual(cache.match([1], 1), []);
  assert.equal(cache.holders(a), 1);
  cache.release([a]);
  assert.throws(() => cache.release([a]), /more often/);
});

test('whatever happens: holds add up, memory is not exceeded, only full prefixes are found', () => {
  const blockCount = 12;
  const command = fc.record({
    op: fc.constantFrom('enter', 'leave', 'flush'),
    prompt: fc.nat(5),
    blocks: fc.integer({ min: 1, max: 6 }),
    pick: fc.nat(),
  });
  fc.assert(
    fc.property(fc.array(command, { maxLength: 80 }), (commands) => {
      const cache = new KvCache(blockCount);
      const open: number[][] = [];
      for (const { op, prompt, blocks, pick } of commands) {
        if (op === 'flush') cache.flush();
        if (op === 'leave' && open.length > 0) cache.release(open.splice(pick % open.length, 1)[0]!);
        if (op === 'enter') {
          const keys = Array.from({ length: blocks }, (_, i) => prompt * 100 + i);
          const cached = cache.match(keys, blocks);
          const free = cache.freeCount - cache.countFree(cached);
          if (blocks - cached.length > free) continue;
          cache.hold(cached);
          const mine = [...cached];
          for (let i = cached.length; i < blocks; i += 1) {
            const block = cache.allocate();
            assert.ok(block !== undefined);
            cache.publish(block, keys[i]!);
            mine.push(block);
          }
          assert.equal(new Set(mine).size, blocks);
          open.push(mine);
        }
        const holds = new Map<number, number>();
        for (const list of open) for (const block of list) holds.set(block, (holds.get(block) ?? 0) + 1);
        for (let block = 0; block < blockCount; block += 1) assert.equal(cache.holders(block), holds.get(block) ?? 0);
        assert.equal(cache.freeCount, blockCount - holds.size);
      }
    }),
  );
});
