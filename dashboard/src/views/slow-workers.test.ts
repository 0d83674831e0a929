import { deepEqual, match } from 'node:assert/strict';
import { test } from 'node:test';
import type { WorkerRow } from '../../../router/src/admin/dashboard/protocol.ts';
import { slowWorkers } from './slow-workers.ts';

const row = (id: string, gap: number | null, first: number | null = null, role = 'regular'): WorkerRow =>
  ({ id, role, token_gap_secs: gap, first_token_secs: first }) as WorkerRow;

test('a worker is slow if it takes far longer than the median', () => {
  const slow = slowWorkers([row('a', 0.01), row('b', 0.011), row('c', 0.012), row('d', 0.04), row('e', null)]);
  deepEqual([...slow.keys()], ['d']);
  match(slow.get('d')!.text, /^40 ms between tokens; the median of the fleet is 12 ms$/);
});

test('the first token counts, too', () => {
  const rows = [row('a', 0.01, 0.1), row('b', 0.01, 0.1), row('c', 0.01, 0.5)];
  deepEqual([...slowWorkers(rows).keys()], ['c']);
});

test('two workers have no median to speak of, and roles are not compared', () => {
  deepEqual(slowWorkers([row('a', 0.01), row('b', 0.1)]).size, 0);
  const roles = [0.01, 0.01, 0.01].map((gap, i) => row(`p${i}`, gap, null, 'prefill'));
  deepEqual(slowWorkers([...roles, row('d', 0.1, null, 'decode')]).size, 0);
});
