import { equal, notEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { SlabPool } from './slab-pool.ts';

test('what is given back is given out again, and there are no more than so many', () => {
  const pool = new SlabPool(65_536, 2);
  const [first, second] = [pool.take()!, pool.take()!];
  equal(first.length, 65_536);
  notEqual(first.buffer, second.buffer);
  equal(pool.take(), null);
  pool.giveBack(first);
  equal(pool.take()!.buffer, first.buffer);
  equal(pool.take(), null);
});

/** In a frame of its own, which keeps nothing alive. */
function leave(pool: SlabPool): void {
  for (let i = 0; i < 4; i++) {
    const slab = pool.take()!;
    if (i % 2 === 0) pool.giveBack(slab);
  }
}

test('slabs without a user are collected: spare ones, and those that were never given back', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const pool = new SlabPool(65_536, 4);
  leave(pool);
  let taken: Buffer | null = null;
  const all: Buffer[] = [];
  for (let tries = 0; all.length < 4 && tries < 1_000; tries++) {
    // What a WeakRef has shown lives to the end of the turn.
    await turn();
    collect();
    await turn();
    while ((taken = pool.take()) !== null) all.push(taken);
  }
  equal(all.length, 4);
  equal(new Set(all.map(({ buffer }) => buffer)).size, 4);
});
