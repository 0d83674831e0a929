import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOf } from '../../test/harness/policy.ts';
import { EngineLabel } from './engine-label.ts';
import { VersionBrackets } from './version-brackets.ts';
import { VersionLabels } from './version-labels.ts';

/** Engines that named their weights `v0`, `v1`, … */
function scene(...urls: string[]) {
  const { fleet, workers } = fleetOf(...urls);
  const labels = new VersionLabels(fleet, { timeoutMs: 1 });
  for (const [i, worker] of workers.entries()) labels.learned(worker, `v${i}`);
  const x = exchangeOf();
  const brackets = new VersionBrackets(labels, null, () => {});
  const seamAt = (at: number): void => {
    x.seams = [...x.seams, { at, worker: 'http://a:1', version: null, cause: 'cut' }];
  };
  return { fleet, workers, labels, x, brackets, seamAt };
}

test('of each engine that sampled a part is known what it named before; of one without a token nothing is kept', () => {
  const { workers, x, brackets, seamAt } = scene('http://a:1', 'http://b:1', 'http://c:1');
  const [first, empty, last] = workers;
  const begun = brackets.begin(x, first!, false, null);
  seamAt(2);
  const failed = brackets.begin(x, empty!, false, begun);
  const asked = brackets.asked(brackets.begin(x, last!, false, failed), false);
  assert.equal(asked.before, 'v2');
  assert.deepEqual(asked.earlier, [{ before: 'v0', stale: null, changes: [] }]);
});

test('of an engine whose part was not captured from its request on nothing is known', () => {
  const { workers, x, brackets, seamAt } = scene('http://a:1');
  seamAt(2);
  const { earlier } = brackets.asked(brackets.begin(x, workers[0]!, false, null), false);
  assert.deepEqual(
    earlier!.map(({ before, stale, changes }) => [before, stale, changes]),
    [[null, null, []]],
  );
});

test('a name that proved nothing when the request left proves nothing of its response either, also if the engine has got another name since', async () => {
  const { workers, x } = scene('http://a:1');
  let name = '7';
  const label = new EngineLabel(async () => name);
  const brackets = new VersionBrackets({ of: () => label } as unknown as VersionLabels, null, () => {});
  const updated = async (): Promise<void> => {
    label.updateBegan();
    label.updateEnded(true);
    await label.ask(true);
  };
  await label.ask(true);
  await updated();
  const bracket = brackets.begin(x, workers[0]!, false, null);
  name = '8';
  await updated();
  assert.equal(label.stale, null);
  assert.equal(brackets.asked(bracket, false).stale, '7');
});
