import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../router/test/harness/fast-check.ts';
import { KvCache, type CacheNode } from './kv-cache.ts';
import { TraceBuilder } from './workload.ts';

const build = new TraceBuilder();
const shared = build.segment('shared', 160);
const left = [shared, build.segment('left', 320)];
const right = [shared, build.segment('right', 320)];

test('a prompt matches what it has in common with the prompts held, in whole blocks', () => {
  const cache = new KvCache();
  assert.equal(cache.match(left), 0);
  cache.insert([...left, build.segment('tail', 7)], 1);
  assert.equal(cache.tokens, 487);
  assert.equal(cache.match(left), 480);
  assert.equal(cache.match(right), 160);
});

test('the least recently used leaf goes first, from its tail on, and its parent after it', () => {
  const cache = new KvCache();
  cache.insert(left, 1);
  cache.insert(right, 2);
  cache.evict(100);
  assert.deepEqual([cache.match(left), cache.match(right)], [368, 480]);
  cache.insert(left, 3);
  cache.evict(320);
  assert.deepEqual([cache.match(left), cache.match(right)], [480, 160]);
  cache.evict(400);
  assert.deepEqual([cache.match(left), cache.tokens], [80, 80]);
});

test('what is read stays until its last reader has gone', () => {
  const cache = new KvCache();
  const first = cache.acquire(left, 1);
  const second = cache.acquire(left, 2);
  cache.insert(right, 3);
  cache.flush();
  assert.deepEqual([cache.tokens, cache.evictableTokens], [480, 0]);
  cache.release(first, 4);
  cache.flush();
  assert.equal(cache.tokens, 480);
  cache.release(second, 5);
  assert.equal(cache.evictableTokens, 480);
  cache.flush();
  assert.deepEqual([cache.tokens, cache.evictableTokens], [0, 0]);
});

test('whatever happens, it can be evicted down to what is read', () => {
  const step = fc.record({ kind: fc.constantFrom('insert', 'acquire', 'release', 'evict'), pick: fc.nat(30) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const make = new TraceBuilder();
      const root = make.segment('root', 48);
      const paths = Array.from({ length: 4 }, (_, i) => [root, make.segment(`a${i}`, 64), make.segment(`b${i}`, 33)]);
      const cache = new KvCache();
      const held: CacheNode[][] = [];
      for (const [now, { kind, pick }] of steps.entries()) {
        const path = paths[pick % 4]!.slice(0, 1 + (pick % 3));
        if (kind === 'insert') cache.insert(path, now);
        if (kind === 'acquire') held.push(cache.acquire(path, now));
        if (kind === 'release') cache.release(held.pop() ?? [], now);
        if (kind === 'evict') cache.evict(10 * pick);
        assert.ok(cache.evictableTokens >= 0 && cache.evictableTokens <= cache.tokens);
      }
      cache.flush();
      const read = new Set(held.flat());
      assert.equal(
        cache.tokens,
        [...read].reduce((sum, node) => sum + node.segment.tokens, 0),
      );
      assert.equal(cache.evictableTokens, 0);
    }),
  );
});
