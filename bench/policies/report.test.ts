import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseTokens, parseWorkload, type Cell } from './grid.ts';
import { runCells } from './pool.ts';
import { renderReport } from './report.ts';
import { spread } from './spread.ts';

test('mean and sample deviation', () => {
  assert.deepEqual(spread([4]), { mean: 4, deviation: 0 });
  assert.deepEqual(spread([1, 2, 3]), { mean: 2, deviation: 1 });
});

test('a workload may name its memory', () => {
  assert.deepEqual(parseWorkload('agent', 450_000), { trace: 'agent', kvTokens: 450_000 });
  assert.deepEqual(parseWorkload('agent@600k', 450_000), { trace: 'agent', kvTokens: 600_000 });
  assert.throws(() => parseWorkload('agents', 1), /no trace/);
  assert.throws(() => parseTokens('6.5k'), /not a number/);
});

test('the report has a row per policy and a table per workload, whatever thread ran what', async () => {
  const cells: Cell[] = ['round_robin', 'rollout_placement'].flatMap((policy) =>
    [1, 2].map((seed) => ({ trace: 'grpo', kvTokens: 450_000, policy, seed, engines: 8 })),
  );
  const seen: string[] = [];
  const results = await runCells(cells, 2, ({ policy, seed }) => seen.push(`${policy} ${seed}`));
  assert.deepEqual(
    results.map(({ policy, seed }) => `${policy} ${seed}`),
    cells.map(({ policy, seed }) => `${policy} ${seed}`),
  );
  assert.equal(seen.length, 4);
  const report = renderReport([...results, { ...results[0]!, trace: 'agent' }]);
  assert.match(report, /## grpo at 450k KV tokens, 8 engines/);
  assert.match(report, /## agent at 450k KV tokens/);
  assert.match(report, /\| round_robin +\| +\d+\.\d ± \d+\.\d \|/);
  assert.match(report, /Best peer `round_robin`/);
});

test('a thread that fails fails the grid', async () => {
  const cell: Cell = { trace: 'tools', kvTokens: 450_000, policy: 'none', seed: 1, engines: 8 };
  await assert.rejects(
    runCells([cell], 1, () => {}),
    /no policy "none"/,
  );
});
