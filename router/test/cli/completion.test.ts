import { equal, ok } from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { turnout } from './turnout.ts';

test('bash completes commands, options of a command, and those of serve where no command is given', async (t) => {
  const run = turnout(t, ['completion', 'bash']);
  equal(await run.ended, 0);
  const complete = (...words: readonly string[]): string[] => {
    const script = `${run.output()}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _turnout; echo "\${COMPREPLY[@]}"`;
    return execFileSync('bash', ['-c', script, 'bash', 'turnout', ...words], { encoding: 'utf8' })
      .trim()
      .split(' ');
  };
  equal(complete('exp').join(), 'export,explain');
  equal(complete('export', '--f').join(), '--format,--finished');
  equal(complete('--worker-u').join(), '--worker-urls');
  equal(complete('--policy', 'rollout', '--data-d').join(), '--data-dir');
  ok(complete('--policy', 'r').includes('rollout'));
  equal(complete('--vers').join(), '--version');
});
