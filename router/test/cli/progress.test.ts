import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { type TestContext, test } from 'node:test';
import { holdLoads, startSims, startSwapScene } from '../harness/swap-scene.ts';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { turnout } from './turnout.ts';
import { program } from '../harness/program.ts';

const ESCAPE = '\x1b';
const small = ['--sessions', '4', '--turns', '3', '--group-size', '2', '--prompt-words', '20', '--turn-words', '10'];
/** util-linux; other systems have other flags. */
const noTerminal = spawnSync('script', ['--version']).stdout?.includes('util-linux')
  ? false
  : 'needs util-linux: script';

/** Runs `turnout` with a terminal. @param redirect of the shell, such as `>file` */
function inTerminal(t: TestContext, args: readonly string[], redirect = '') {
  const command = [process.execPath, program, ...args].map((word) => `'${word}'`).join(' ');
  // `exec`: Ctrl-C reaches the shell too, and dash would answer 130 for a command that ended with 0.
  const line = `stty cols 100; exec ${command} ${redirect}`;
  const child = spawn('script', ['-qec', line, '/dev/null'], { stdio: 'pipe' });
  let output = '';
  const seen = new Set<() => void>();
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
    for (const look of seen) look();
  });
  const ended = once(child, 'close').then(([code]) => Number(code));
  t.after(() => child.kill('SIGKILL'));
  const shows = (pattern: RegExp): Promise<void> =>
    new Promise((resolve, reject) => {
      const look = (): void => void (pattern.test(output) && resolve());
      seen.add(look);
      look();
      void ended.then(() => reject(new Error(`ended without ${pattern}: ${output}`)));
    });
  return { child, ended, shows, output: () => output };
}

test(
  'on a terminal a weight swap has a bar for each worker, which is gone at the end',
  { skip: noTerminal },
  async (t) => {
    const [slow, quick] = await startSims(t, ['vllm', 'sglang']);
    const goOn = holdLoads(t, slow!);
    const { router } = await startSwapScene(t, [slow!, quick!]);
    const run = inTerminal(t, ['swap', 'step-1', '--watch', '--url', router.url]);
    await run.shows(new RegExp(`${slow!.url}  [█░]{24}  `));
    goOn();
    assert.equal(await run.ended, 0, run.output());
    const [, last = ''] = run.output().split(`${ESCAPE}[0J`).slice(-2);
    assert.equal(
      last.replaceAll('\r', ''),
      `${slow!.url}  serving  done  step-1\n${quick!.url}  serving  done  step-1\n`,
    );
  },
);

test('bars are on stderr: a redirected result has only the result', { skip: noTerminal }, async (t) => {
  const engine = await startSimEngine({ timeScale: 0.02, kind: 'vllm' });
  t.after(() => engine.close());
  const args = ['bench', '--worker-urls', engine.url, '--policies', 'round_robin', ...small, '--yes'];
  const run = inTerminal(t, args, '2>/dev/null');
  assert.equal(await run.ended, 0, run.output());
  assert.ok(!run.output().includes('░') && /^round_robin/m.test(run.output()), run.output());
  const shown = inTerminal(t, args, '>/dev/null');
  assert.equal(await shown.ended, 0, shown.output());
  assert.match(shown.output(), /bench: round_robin {2}[█░]{24} {2}\d+ of about \d+ turns/);
});

test('Ctrl-C ends a command that shows bars', { skip: noTerminal, timeout: 60_000 }, async (t) => {
  const engine = await startSimEngine({ timeScale: 1_000, kind: 'vllm' });
  t.after(() => engine.close());
  const run = inTerminal(t, ['bench', '--worker-urls', engine.url, ...small, '--yes']);
  await run.shows(/░/);
  run.child.stdin.write('\x03');
  assert.equal(await run.ended, 130);
});

test(
  'on a terminal a launch has a bar until all engines are ready',
  { skip: noTerminal, timeout: 60_000 },
  async (t) => {
    const ports = ['--port', '0', '--prometheus-port', '0', '--log-dir', temporaryFolder(t)];
    const run = inTerminal(t, ['launch', '--engine', 'sim', '--dp-size', '2', ...ports, '--', 'timeScale=0']);
    await run.shows(/launch {2}[█░]{24} {2}waiting for \d of 2 engines/);
    await run.shows(/\[launch\] all 2 engines are ready/);
    run.child.stdin.write('\x03');
    assert.equal(await run.ended, 0, run.output());
    assert.match(run.output(), /\[launch\] all engines are stopped/);
    // A last bar may come before the signal is handled, but none behind it.
    const [, stopping] = run.output().split('draining');
    assert.ok(stopping !== undefined && !stopping.includes('░'), run.output());
  },
);

test('without a terminal there are lines, and no control characters', async (t) => {
  const engine = await startSimEngine({ timeScale: 20, kind: 'vllm' });
  t.after(() => engine.close());
  const run = turnout(t, ['bench', '--worker-urls', engine.url, '--policies', 'round_robin', ...small, '--yes']);
  await run.says(/^bench: round_robin: \d+ of about \d+ turns\n/m);
  assert.ok(!run.output().includes(ESCAPE));
});
