import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { TestContext } from 'node:test';
import { PATIENCE_MS } from '../harness/within.ts';
import { program } from '../harness/program.ts';

/** A `turnout` process and what it has printed. */
export interface Turnout {
  readonly child: ChildProcess;
  output(): string;
  /** Resolves with the match once the output has it; rejects when the process ends or `PATIENCE_MS` pass before. */
  says(pattern: RegExp): Promise<RegExpExecArray>;
  /** Resolves with the exit code. */
  readonly ended: Promise<number>;
}

/** Runs the command line as a user would. It is ended with the test. `shell`: words before it, such as `ulimit -n 64`. */
export function turnout(
  t: TestContext,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
  shell?: string,
  entry = program,
): Turnout {
  const all = [process.execPath, entry, ...args];
  const [command = '', ...words] = shell === undefined ? all : ['sh', '-c', `${shell}; exec "$@"`, 'sh', ...all];
  const child = spawn(command, words, { env: { ...process.env, ...env } });
  let text = '';
  const waiting = new Set<() => void>();
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (part: Buffer) => {
      text += part.toString();
      for (const look of waiting) look();
    });
  }
  const ended = once(child, 'close').then(([code]) => Number(code));
  t.after(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  return {
    child,
    ended,
    output: () => text,
    says: (pattern) =>
      new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`never said ${pattern}:\n${text}`)), PATIENCE_MS);
        const look = (): void => {
          const match = pattern.exec(text);
          if (match === null) return;
          clearTimeout(timer);
          waiting.delete(look);
          resolve(match);
        };
        waiting.add(look);
        void ended.then(() => {
          look();
          reject(new Error(`ended before it said ${pattern}:\n${text}`));
        });
        look();
      }),
  };
}
