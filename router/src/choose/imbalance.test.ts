import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fleetOfSize, policyContext } from '../../test/harness/policy.ts';
import { isImbalanced } from './imbalance.ts';

function judge(loads: readonly number[], balanceAbsThreshold: number, balanceRelThreshold: number): boolean {
  const { fleet, workers } = fleetOfSize(loads.length);
  for (const [i, load] of loads.entries()) for (let n = 0; n < load; n++) fleet.begin(workers[i]!);
  return isImbalanced(fleet, workers, policyContext(fleet, { balanceAbsThreshold, balanceRelThreshold }).options);
}

test('load decides when it is more than both thresholds apart', () => {
  assert.equal(judge([33, 0], 32, 1.1), true);
  assert.equal(judge([32, 0], 32, 1.1), false, 'no more than the absolute threshold');
  assert.equal(judge([430, 397, 400], 32, 1.1), false, 'no more than the relative threshold');
  assert.equal(judge([440, 398, 400], 32, 1.1), true);
  assert.equal(judge([100], 0, 1), false, 'one worker');
  assert.equal(judge([0, 0], 0, 1), false, 'idle');
  assert.equal(judge([1, 0], 0, 1), true);
});
