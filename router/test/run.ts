import type { ChildProcess } from 'node:child_process';
import { subscribe } from 'node:diagnostics_channel';
import { globSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { processTree } from '../../bench/proc.ts';
import { batchesOf } from './batches.ts';
import { isBuiltTested } from './harness/program.ts';
import { stacksOf } from './stacks-of.ts';
import { foldersOfSuites, runSuite } from './suites.ts';

/** `npm test`: everything that needs nothing but this checkout; `npm test -- suite:NAME` runs one of the suites that need more. */

const root = join(import.meta.dirname, '../..');
const [first = ''] = process.argv.slice(2);
if (first.startsWith('suite:')) process.exit(runSuite(root, first.slice('suite:'.length), process.argv.slice(3)));

/** Words of paths; with `!` before it, of paths that are left out. */
const words = process.argv.slice(2);
const wanted = words.filter((word) => !word.startsWith('!'));
const unwanted = words.filter((word) => word.startsWith('!')).map((word) => word.slice(1));

/** Tests of single modules, most of them. */
const isShort = (file: string): boolean => !file.startsWith('router/test/');

const files = globSync(
  [
    'router/src/**/*.test.ts',
    'router/test/**/*.test.ts',
    'simulator/src/**/*.test.ts',
    'examples/**/*.test.ts',
    'bench/**/*.test.ts',
    'release/**/*.test.ts',
    'dashboard/src/**/*.test.ts',
  ],
  {
    cwd: root,
  },
)
  .filter((file) => !foldersOfSuites.includes(dirname(file)))
  .filter((file) => wanted.length === 0 || wanted.some((part) => file.includes(part)))
  .filter((file) => !unwanted.some((part) => file.includes(part)))
  // Long ones first: short ones fill what time is left.
  .toSorted((a, b) => Number(isShort(a)) - Number(isShort(b)) || (a < b ? -1 : 1));

// Hundreds of processes load the same sources: compiled once, they take about a quarter less CPU time to start.
process.env['NODE_COMPILE_CACHE'] ??= join(root, 'node_modules/.cache/compiled');

/** What takes longer fails: a test, or a file that shares a process. */
const TEST_MS = Number(process.env['TURNOUT_TEST_MS'] ?? 240_000);
// Routers that tests start would name it as no option of theirs.
delete process.env['TURNOUT_TEST_MS'];
/** A process that takes longer is ended. */
const PROCESS_MS = 3 * TEST_MS;
const batches = batchesOf(root, files, TEST_MS);

// `timeout` of `run` ends no process: not a loop, and not one whose tests have ended while something keeps it open.
const hung: string[] = [];
subscribe('child_process', (message) => {
  const { process: child } = message as { process: ChildProcess };
  const timer = setTimeout(() => void endHung(child), PROCESS_MS);
  child.once('exit', () => clearTimeout(timer));
});

/** Ends a process, and says where it was. */
async function endHung(child: ChildProcess): Promise<void> {
  const files = batches.get(child.spawnargs.at(-1)!)!.join(' or ');
  const stacks = await stacksOf(child, 10_000);
  const lines = [`${files} hung: its process was ended after ${PROCESS_MS / 1000} s`, ...stacks];
  hung.push(lines.join('\n    at '));
  // What it has started too: it holds the pipe that is read here.
  for (const pid of processTree(child.pid!)) endNow(pid);
}

function endNow(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}

const counts = { passed: 0, failed: 0, skipped: 0 };
const stream = run({
  files: [...batches.keys()],
  concurrency: 3,
  timeout: TEST_MS,
  execArgv: [
    '--inspect-port=0',
    ...(isBuiltTested ? ['--import', join(import.meta.dirname, 'harness/built-threads.ts')] : []),
  ],
});
stream.on('test:summary', ({ file, counts: summary }) => {
  if (file !== undefined) return;
  counts.passed = summary.passed;
  counts.failed = summary.tests - summary.passed - summary.skipped - summary.todo;
  counts.skipped = summary.skipped;
});
stream.compose(new spec()).pipe(process.stdout);
stream.on('end', () => {
  process.exitCode = counts.failed > 0 || counts.passed === 0 || hung.length > 0 ? 1 : 0;
  process.on('exit', () => {
    const skipped = counts.skipped > 0 ? `, ${counts.skipped} skipped` : '';
    for (const line of hung) process.stdout.write(`\nFAILED: ${line}\n`);
    process.stdout.write(
      `\nNext: npm run demo (rollouts over simulated engines) · npm test -- suite:real (real vLLM and SGLang on the CPU) · npm run bench\n` +
        `${counts.passed} passed, ${counts.failed} failed${skipped} on Node.js ${process.version}\n`,
    );
  });
});
