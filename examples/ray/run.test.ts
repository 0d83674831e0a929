import { deepEqual, match } from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../../router/test/harness/temporary-folder.ts';

test('without Ray the example says why, and what can be done', (t) => {
  const env = { ...process.env, TURNOUT_REAL_DIR: temporaryFolder(t), TURNOUT_REAL_INSTALL: '0' };
  const root = join(import.meta.dirname, '../..');
  const run = spawnSync(process.execPath, ['examples/run.ts', 'ray'], { cwd: root, env, encoding: 'utf8' });
  deepEqual([run.status, run.stdout], [1, '']);
  match(run.stderr, /^demo: Ray 2\.60 can't be had: none in .*TURNOUT_REAL_INSTALL=0 forbids installing it$/m);
  match(run.stderr, /python examples\/ray\/run\.py/);
});
