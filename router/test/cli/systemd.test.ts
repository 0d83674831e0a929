import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { serverOptions } from '../../src/config/options/server.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { turnout } from './turnout.ts';

const unit = readFileSync(join(import.meta.dirname, '../../../deploy/systemd/turnout.service'), 'utf8');
const valueOf = (name: string): string => new RegExp(`^${name}=(.*)$`, 'm').exec(unit)![1]!;
const skip = spawnSync('systemd-analyze', ['--version']).status === 0 ? false : 'needs systemd-analyze';

/** The most exposed that `systemd-analyze security` may find it, of 10. */
const MOST_EXPOSED = 2;

test('systemd finds nothing wrong with the unit, and little that the router could reach', { skip }, (t) => {
  const file = join(temporaryFolder(t), 'turnout.service');
  // systemd checks that the program is there.
  writeFileSync(file, unit.replace('/usr/local/bin/turnout', process.execPath));
  const verified = spawnSync('systemd-analyze', ['verify', file], { encoding: 'utf8' });
  assert.deepEqual([verified.status, verified.stderr], [0, '']);
  const { stdout } = spawnSync('systemd-analyze', ['security', '--offline=true', file], { encoding: 'utf8' });
  const exposed = /Overall exposure level for turnout\.service: ([\d.]+)/.exec(stdout)?.[1];
  assert.ok(Number(exposed) <= MOST_EXPOSED, stdout);
});

test('the unit waits for the drain, and its command line is one of the router', async (t) => {
  assert.equal(valueOf('KillSignal'), 'SIGTERM');
  const grace = serverOptions.shutdownGracePeriodSecs.schema.parse(undefined);
  assert.ok(Number(valueOf('TimeoutStopSec')) > grace);
  const folder = temporaryFolder(t);
  const file = join(folder, 'turnout.yaml');
  writeFileSync(file, 'worker-urls: [http://127.0.0.1:1]\n');
  const [program, ...args] = valueOf('ExecStart').replace('/etc/turnout/turnout.yaml', file).split(' ');
  assert.equal(program, '/usr/local/bin/turnout');
  const [name = '', state = ''] = valueOf('Environment').split('=');
  assert.equal(state, `/var/lib/${valueOf('StateDirectory')}`);
  const run = turnout(t, [...args, '--check'], { [name]: folder });
  assert.equal(await run.ended, 0, run.output());
});
