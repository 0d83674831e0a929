import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import type { SwapRow } from '../../../router/src/admin/dashboard/protocol.ts';
import { barsOf, spanOf } from './swap-bars.ts';

const row = (change: Partial<SwapRow>): SwapRow =>
  ({ started_at: 1_000, began_at: 1_100, ended_at: null, stage: 'done', phases_ms: {}, ...change }) as SwapRow;

test('bars follow each other from when the gate closed', () => {
  const bars = barsOf(row({ ended_at: 2_000, phases_ms: { gate: 10, pause: 20, load: 300, resume: 5 } }), 9_000);
  deepEqual(
    bars.map(({ stage, from, to }) => [stage, from, to]),
    [
      ['gate', 1_100, 1_110],
      ['pause', 1_110, 1_130],
      ['load', 1_130, 1_430],
      ['resume', 1_430, 1_435],
    ],
  );
});

test('a running stage lasts until now', () => {
  const bars = barsOf(row({ stage: 'load', phases_ms: { pause: 20 } }), 3_000);
  deepEqual(bars.at(-1), { stage: 'load', from: 1_120, to: 3_000, isRunning: true });
  deepEqual(barsOf(row({ stage: 'done', phases_ms: { pause: 20 } }), 3_000).length, 1);
});

test('the span covers the bars of all engines', () => {
  const rows = [row({ phases_ms: { load: 100 } }), row({ began_at: 1_500, phases_ms: { load: 700 } })];
  deepEqual(spanOf(rows, 0), { from: 1_100, to: 2_200 });
  deepEqual(spanOf([], 5_000), { from: 4_999, to: 5_000 });
});
