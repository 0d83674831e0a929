import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_KEYS, Meters, WorkerMeters } from './meters.ts';

test('a breaker changes from state to state', () => {
  const meters = new WorkerMeters();
  for (const state of ['open', 'half_open', 'open', 'half_open', 'closed', 'open', 'half_open'] as const) {
    meters.breakerChanged(state);
  }
  meters.workerLeft();
  meters.breakerChanged('open');
  deepEqual(Object.fromEntries(meters.breakerChanges), {
    'closed open': 3,
    'open half_open': 3,
    'half_open open': 1,
    'half_open closed': 1,
  });
});

test('beyond the limit the counters of workers that have left are dropped, and stay in the sums of all', () => {
  const meters = new Meters();
  meters.hasLeft = (url) => url !== 'http://stays';
  const count = (url: string): void => {
    const of = meters.worker({ url });
    of.cut++;
    of.promptTokens += 10;
    of.byStatusClass[5]!++;
  };
  count('http://stays');
  for (let i = 1; i < MAX_KEYS + 10; i++) {
    count(`http://w${i}`);
    const { cut, promptTokens, byStatusClass } = meters.ofAll();
    deepEqual([cut, promptTokens, byStatusClass[5]], [i + 1, 10 * (i + 1), i + 1]);
  }
  equal(meters.byWorker.size, MAX_KEYS);
  equal(meters.byWorker.get('http://stays')!.cut, 1);
  deepEqual([...meters.byWorker.keys()].slice(0, 2), ['http://stays', 'http://w11']);
});
