import { type ChildProcess, spawn } from 'node:child_process';

/** Programs of Debian's package `prometheus`. */
type Program = 'promtool' | 'prometheus';

/** Starts a program. Rejects with the way to install it where it is missing. */
export async function start(program: Program, args: readonly string[]): Promise<ChildProcess> {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', () =>
      reject(new Error(`${program} is missing: apt-get install prometheus, or put it on the PATH`)),
    );
  });
  return child;
}

/** @returns the complaints of `promtool check metrics` about a page, one a line */
export async function complaints(page: string): Promise<string[]> {
  const child = await start('promtool', ['check', 'metrics']);
  let output = '';
  for (const stream of [child.stdout!, child.stderr!])
    stream.setEncoding('utf8').on('data', (text) => (output += text));
  child.stdin!.end(page);
  await new Promise((resolve) => child.once('close', resolve));
  return output.split('\n').filter((line) => line !== '');
}
