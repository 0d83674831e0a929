import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { WorkerMeters } from './meters.ts';

test('a breaker changes from state to state', () => {
  const meters = new WorkerMeters();
  for (const state of ['closed', 'open', 'half_open', 'open', 'half_open', 'closed', 'open'] as const) {
    meters.breakerChanged(state);
  }
  // The worker was removed and added again, which closes its breaker.
  meters.breakerChanged('open');
  deepEqual(Object.fromEntries(meters.breakerChanges), {
    'closed open': 3,
    'open half_open': 2,
    'half_open open': 1,
    'half_open closed': 1,
  });
});
