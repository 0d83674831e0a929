import { deepEqual, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { MOST_SHARE, comparePolicies, comparisonTable, policies, rolloutShare } from './comparison.ts';

test('in simulated time every batch of the demo takes rollout at most 0.8 of what the best other policy takes', () => {
  const all = comparePolicies();
  const { least, median, most } = rolloutShare(all);
  ok(least <= median && median <= most && most <= MOST_SHARE, `${least}, ${median}, ${most}`);
  deepEqual(
    comparisonTable(all)
      .split('\n')
      .map((line) => line.split(' ')[0]),
    ['policy', ...policies],
  );
  match(comparisonTable(all), /^rollout +\d+\.\d s \(\d+\.\d to \d+\.\d\) +█+ +\d+ % /m);
});
