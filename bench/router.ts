// A program or a router of this checkout as a child process that says where it listens.
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { endsWithUs } from './child.ts';

export const routerProgram = join(import.meta.dirname, '../router/bin/turnout.js');

/** Runs Node with these arguments, to the end of the benchmark at most. @returns what `find` matches in its output */
export async function startNode(
  args: readonly string[],
  find: RegExp,
): Promise<{ readonly child: ChildProcess; readonly found: string }> {
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] });
  endsWithUs(child);
  let text = '';
  for await (const part of child.stdout!.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    text += part.toString();
    const found = find.exec(text)?.[1];
    if (found === undefined) continue;
    child.stdout!.resume();
    return { child, found };
  }
  throw new Error(`it ended: ${text}`);
}

export interface StartedRouter {
  readonly child: ChildProcess;
  readonly url: string;
  readonly port: number;
}

/** A router on a free port. @param nodeArgs options of Node */
export async function startRouter(args: readonly string[], nodeArgs: readonly string[] = []): Promise<StartedRouter> {
  const serve = [routerProgram, 'serve', '--port', '0', '--prometheus-port', '0', ...args];
  const { child, found } = await startNode([...nodeArgs, ...serve], /listening on (http:\/\/127\.0\.0\.1:\d+)/);
  return { child, url: found, port: Number(new URL(found).port) };
}
