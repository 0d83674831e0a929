import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';

const here = import.meta.dirname;
const cache = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
const root = process.env['TURNOUT_REAL_DIR'] ?? join(cache, 'turnout');

export type Program = ChildProcessByStdio<Writable, Readable, null>;
const running = new Set<Program>();
process.once('exit', () => running.forEach((program) => program.kill('SIGKILL')));

export function say(text: string): void {
  process.stdout.write(`grpo: ${text}\n`);
}

/** A program of this folder, in the environment that `install.sh` makes. */
export function python(script: string, args: readonly string[]): Program {
  const program = spawn(join(root, 'grpo/bin/python'), [join(here, script), ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: {
      ...process.env,
      PYTHONDONTWRITEBYTECODE: '1',
      HF_HUB_OFFLINE: '1',
      TRANSFORMERS_OFFLINE: '1',
      HF_HUB_DISABLE_PROGRESS_BARS: '1',
      OMP_NUM_THREADS: '1',
      CUDA_VISIBLE_DEVICES: '',
    },
  });
  running.add(program);
  program.once('exit', () => running.delete(program));
  program.stdin.on('error', () => undefined); // it has ended: its exit status says why
  return program;
}

/** Calls `each` with every line of a program's output. Rejects where it fails; that we ended it is no failure. */
export async function runOf(program: Program, each: (line: string) => void): Promise<void> {
  const exit = once(program, 'exit') as Promise<[number | null, string | null]>;
  for await (const line of createInterface({ input: program.stdout })) each(line);
  const [status, signal] = await exit;
  if (status !== 0 && signal !== 'SIGTERM') throw new Error(`${program.spawnargs[1]} failed: ${status ?? signal}`);
}

/** @returns why the Python packages can't be had, or false */
export async function install(): Promise<string | false> {
  const script = spawn('bash', [join(here, 'install.sh')], { stdio: ['ignore', 'inherit', 'inherit'] });
  const [status] = (await once(script, 'exit')) as [number | null];
  return status === 0 ? false : 'the Python packages of the trainer cannot be installed: see above';
}

/** The folder of the model that has learned from demonstrations: made once, and kept outside the checkout. */
export async function student(steps: string): Promise<string> {
  const folder = join(root, 'grpo', `student-${steps}`);
  if (existsSync(folder)) return folder;
  say(`teaching the student with ${steps} batches of demonstrations, three minutes`);
  await runOf(python('student.py', [folder, steps]), say);
  return folder;
}
