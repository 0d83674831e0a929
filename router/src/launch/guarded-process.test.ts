import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { GuardedProcess, LineSplitter } from './guarded-process.ts';

async function run(program: string, ...args: string[]): Promise<{ lines: string[]; how: string }> {
  const lines: string[] = [];
  const plan = { index: 0, url: '', port: 0, program, args, env: process.env };
  const how = await new GuardedProcess(plan, (line) => lines.push(line)).ended;
  return { lines, how };
}

function linesOf(...parts: string[]): string[] {
  const lines: string[] = [];
  const splitter = new LineSplitter((line) => lines.push(line));
  for (const part of parts) splitter.push(part);
  splitter.end();
  return lines;
}

test('lines end where they end, however they arrive', () => {
  assert.deepEqual(linesOf('a\nb', 'c\n\nd\r', '\ne'), ['a', 'bc', 'd', 'e']);
  assert.deepEqual(linesOf('10%\r20%\r', '30%\r\n'), ['10%', '20%', '30%']);
});

test('a line without an end is dropped at a limit', () => {
  assert.deepEqual(
    linesOf('x'.repeat(10_000), 'x'.repeat(10_000), 'y\n').map((line) => line.length),
    [20_000, 1],
  );
});

test('a line of one output is not broken by a line of the other', async () => {
  const { lines } = await run(
    'sh',
    '-c',
    "printf 'loading'; sleep 0.1; echo 'a warning' >&2; sleep 0.1; echo ' is done'",
  );
  assert.deepEqual(lines, ['a warning', 'loading is done']);
});

test('a process that the system cannot start now has ended', async () => {
  const { how } = await run('true', 'x'.repeat(1_000_000));
  assert.equal(how, 'spawn E2BIG');
  const module = new URL('./guarded-process.ts', import.meta.url).href;
  const program = `
    import('${module}').then(async ({ GuardedProcess }) => {
      const plan = { program: 'true', args: [], env: process.env };
      const { openSync } = await import('node:fs');
      try {
        for (;;) openSync('/dev/null');
      } catch {}
      console.log(await new GuardedProcess(plan, () => {}).ended);
    });`;
  const words = ['-c', 'ulimit -n 64; exec "$@"', 'sh', process.execPath, '-e', program];
  const { stdout, stderr } = spawnSync('sh', words, { encoding: 'utf8' });
  assert.equal(stdout, 'spawn sh EMFILE\n', stderr);
});

test('a process that has its own session and keeps the output open does not delay the end', async () => {
  const startedMs = performance.now();
  const script = `
    const sleeper = require('node:child_process').spawn('sleep', ['8'], { detached: true, stdio: 'inherit' });
    sleeper.once('spawn', () => process.stdout.write('its last words', () => process.exit(3)));`;
  const { lines, how } = await run(process.execPath, '-e', script);
  assert.equal(how, 'ended with exit code 3');
  assert.deepEqual(lines, ['its last words']);
  assert.ok(performance.now() - startedMs < 6_000);
});
