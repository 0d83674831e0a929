// Child processes of the benchmark: their output goes to a file, and all are stopped at the end.
import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { processTree } from './proc.ts';

export interface Child {
  readonly pid: number;
  /** The end of its output, for error messages. */
  finalEvent(): string;
  hasEnded(): boolean;
  stop(): Promise<void>;
}

const running = new Set<ChildProcess>();

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // it has ended already
  }
}

process.on('exit', () => {
  for (const child of running) {
    if (child.pid !== undefined) for (const pid of processTree(child.pid)) signal(pid, 'SIGKILL');
  }
});
for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => process.exit(1));

/** Ends the process when the benchmark ends. */
export function endsWithUs(child: ChildProcess): void {
  running.add(child);
  child.on('exit', () => running.delete(child));
}

export function startChild(command: readonly string[], logFile: string): Child {
  const [file, ...args] = command;
  if (file === undefined) throw new Error('an empty command');
  const log = openSync(logFile, 'w');
  const child = spawn(file, args, { stdio: ['ignore', log, log] });
  closeSync(log);
  let isOver = false;
  let failure = '';
  endsWithUs(child);
  child.on('error', (error) => {
    failure = error.message;
    isOver = true;
  });
  child.on('exit', () => {
    isOver = true;
  });
  const { pid } = child;
  return {
    pid: pid ?? -1,
    finalEvent: () => failure || readFileSync(logFile, 'utf8').trim().split('\n').slice(-6).join('\n'),
    hasEnded: () => isOver,
    async stop() {
      if (pid === undefined || isOver) return;
      const tree = processTree(pid);
      signal(pid, 'SIGTERM');
      for (let waited = 0; waited < 1000 && !isOver; waited += 50) await sleep(50);
      // Some routers drain for minutes after SIGTERM, and the children of a wrapper may outlive it.
      if (!isOver) for (const each of tree) signal(each, 'SIGKILL');
    },
  };
}
