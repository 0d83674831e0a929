import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { type Future, Futures } from './futures.ts';
import type { SampleResult } from './sample.ts';

/** A result that counts as about this many bytes. */
const resultOf = (bytes: number): SampleResult => ({
  sequences: [
    { stopReason: 'stop', tokens: new Int32Array(bytes / 8), logprobs: new Float32Array(bytes / 8), top: null },
  ],
  promptLogprobs: null,
  topPrompt: null,
  cachedTokens: 0,
});
const LARGE = resultOf(80_000_000);

test('results that are not fetched are bounded by their bytes: the oldest are dropped, counted, and gone for their client', (t) => {
  const futures = new Futures();
  t.after(() => futures.close());
  const over: string[] = [];
  futures.onOver = (id) => over.push(id);
  const finished = (result = LARGE): Future => {
    const future = futures.issue('');
    futures.settle(future, result);
    return future;
  };
  const foundOf = (all: readonly Future[]): boolean[] =>
    all.map((future) => futures.find(future.id, '', false) === future);
  const open = futures.issue('');
  const [first, second, third] = [finished(), finished(), finished()];
  deepEqual(foundOf([first, second, third]), [true, true, true]);
  // What is fetched counts no more.
  futures.fetched(second);
  const fourth = finished();
  deepEqual(foundOf([first, third, fourth]), [true, true, true]);
  const fifth = finished();
  deepEqual(foundOf([open, first, third, fourth, fifth]), [true, false, true, true, true]);
  equal(futures.find(first.id, '', false), 410);
  equal(futures.dropped, 1);
  ok(over.includes(first.id), 'a restart need not sample it again');
});

test('one result that is larger than the limit is kept; alternatives of tokens count', (t) => {
  const futures = new Futures();
  t.after(() => futures.close());
  const row = Array.from({ length: 1000 }, (_, i): [number, number] => [i, -1]);
  const topPrompt = Array.from({ length: 5000 }, () => row);
  const [small, large] = [futures.issue(''), futures.issue('')];
  futures.settle(small, resultOf(8));
  futures.settle(large, { ...resultOf(8), topPrompt });
  equal(futures.find(small.id, '', false), 410);
  equal(futures.find(large.id, '', false), large);
});

test('a client that fetches no results drops no result of another one, and has no place of it', (t) => {
  const futures = new Futures();
  t.after(() => futures.close());
  const finished = (tenant: string, bytes: number): Future => {
    const future = futures.issue(tenant);
    futures.settle(future, resultOf(bytes));
    return future;
  };
  const own = finished('b', 40_000_000);
  const [first, second] = [finished('a', 80_000_000), finished('a', 80_000_000)];
  const last = finished('a', 80_000_000);
  deepEqual(
    [own, first, second, last].map(({ id }) => futures.find(id, '', true) instanceof Object),
    [true, false, true, true],
  );
  // Its own result is small beside those of the other one.
  const next = finished('b', 40_000_000);
  equal(futures.find(own.id, 'b', false), own);
  equal(futures.find(next.id, 'b', false), next);
  deepEqual([futures.sizeOf('a'), futures.sizeOf('b')], [2, 2]);
  futures.fetched(next);
  futures.drop(own);
  futures.drop(own);
  deepEqual([futures.sizeOf('a'), futures.sizeOf('b'), futures.size], [2, 0, 2]);
});

test('what an earlier process has issued is gone, also where the clock was set back since', (t) => {
  const { timers } = t.mock;
  timers.enable({ apis: ['Date'], now: 2_000_000_000_000 });
  const earlier = new Futures();
  t.after(() => earlier.close());
  const { id } = earlier.issue('');
  timers.reset();
  for (const now of [1_900_000_000_000, 2_100_000_000_000]) {
    timers.enable({ apis: ['Date'], now });
    const later = new Futures();
    t.after(() => later.close());
    equal(later.find(id, '', false), 410, String(now));
    timers.reset();
  }
});
