import { deepEqual, match } from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

test('without an Envoy the example says why, and what can be done', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-no-envoy-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const env = { ...process.env, TURNOUT_REAL_DIR: folder, TURNOUT_REAL_INSTALL: '0' };
  const root = join(import.meta.dirname, '../..');
  const run = spawnSync(process.execPath, ['examples/run.ts', 'envoy'], { cwd: root, env, encoding: 'utf8' });
  deepEqual([run.status, run.stdout], [1, '']);
  match(run.stderr, /^demo: Envoy 1\.40 can't be had: none in .*TURNOUT_REAL_INSTALL=0 forbids installing it$/m);
  match(run.stderr, /--envoy PATH/);
});
