import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const root = join(import.meta.dirname, '../../..');

test('the example: no request fails, is lost or doubled, and sessions of rollout stay', { timeout: 180_000 }, (t) => {
  const out = temporaryFolder(t);
  const args = ['examples/run.ts', 'envoy', '--policies', 'rollout', '--time-scale', '0.25', '--out', out];
  const run = spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' });
  assert.equal(run.status, 0, run.stdout + run.stderr);
  assert.match(run.stdout, /^rollout +(\d+) +\1 +\1 +\1 +\d+\.\d %/m);
  const boxes = readFileSync(join(out, 'batches.svg'), 'utf8').match(/height="2"/g)!;
  assert.equal(boxes.length, Number(/, (\d+) turns for each policy/.exec(run.stdout)![1]));
});
