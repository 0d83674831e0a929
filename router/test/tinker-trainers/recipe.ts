import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pythonOf } from '../clients/environments.ts';

/** One line of the recipe's metrics. */
export type StepMetrics = Readonly<Record<string, number>>;

/**
 * Runs tinker-cookbook's recipe `math_rl` with additions, which needs no data set, until it ends.
 * @param folder of its files; it is made
 * @param fields of the recipe's command line
 * @returns a line for each training step. Throws with the end of its output if it fails.
 */
export async function runRecipe(
  folder: string,
  fields: Readonly<Record<string, string | number>>,
): Promise<StepMetrics[]> {
  mkdirSync(folder);
  const log = join(folder, 'recipe.log');
  const results = join(folder, 'recipe');
  const sink = openSync(log, 'w');
  const args = Object.entries({ env: 'arithmetic', log_path: results, ...fields }).map((field) => field.join('='));
  const child = spawn(pythonOf('cookbook-0.5.7'), ['-m', 'tinker_cookbook.recipes.math_rl.train', ...args], {
    cwd: folder,
    stdio: ['ignore', sink, sink],
    env: { ...process.env, TINKER_API_KEY: 'tml-dummy', HF_HUB_OFFLINE: '1', TRANSFORMERS_OFFLINE: '1' },
  });
  closeSync(sink);
  const kill = (): boolean => child.kill('SIGKILL');
  process.once('exit', kill);
  const [status] = (await once(child, 'exit')) as [number | null];
  process.off('exit', kill);
  if (status !== 0) {
    const tail = readFileSync(log, 'utf8').trimEnd().split('\n').slice(-40).join('\n');
    throw new Error(`the recipe exited with ${status}; the end of its output:\n${tail}`);
  }
  const lines = readFileSync(join(results, 'metrics.jsonl'), 'utf8').trimEnd().split('\n');
  return lines.map((line) => JSON.parse(line) as StepMetrics).filter((line) => 'env/all/reward/total' in line);
}
