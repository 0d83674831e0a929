import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

const root = join(import.meta.dirname, '../../..');

/** Turns, turns that a client sent again, sessions that moved, engines. */
const rowOf = (output: string, title: string): number[] =>
  new RegExp(`^${title} +(\\d+) +(\\d+) +(\\d+) +(\\d+)$`, 'm').exec(output)!.slice(1).map(Number);

test('engines register, leave and are killed, and the router is killed, while agents run', { timeout: 300_000 }, () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['examples/run.ts', 'ray'], {
    cwd: root,
    encoding: 'utf8',
  });
  assert.equal(status, 0, stdout + stderr);
  assert.deepEqual(rowOf(stdout, '3 engines have registered'), [64, 0, 0, 3]);
  assert.deepEqual(rowOf(stdout, 'an engine joins'), [128, 0, 0, 4]);
  const [turns, again, moved, engines] = rowOf(stdout, 'an engine leaves after its last request');
  assert.deepEqual([turns, again, engines], [192, 0, 3]);
  assert.ok(moved! > 0 && moved! < 48, stdout);
  const engine = rowOf(stdout, 'an engine is killed');
  assert.deepEqual([engine[0], engine[1], engine[3]], [256, 0, 3]);
  const actor = rowOf(stdout, 'the actor of an engine is killed');
  assert.deepEqual([actor[0], actor[1], actor[3]], [320, 0, 3]);
  const restarted = rowOf(stdout, 'the actor of the router is killed');
  assert.deepEqual([restarted[0], restarted[3]], [384, 3]);
  // The sessions of an engine move that the new router finds healthy a moment after the others.
  assert.ok(restarted[2]! < 10, stdout);
});
