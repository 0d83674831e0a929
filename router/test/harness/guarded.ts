import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import type { Readable } from 'node:stream';

/** Seconds that the processes of a group have to end after this one has. */
const GRACE_SECS = 5;

/**
 * Runs `$@` as the leader of a process group, with a guard in the group that reads from a pipe of this process. The pipe closes when this
 * process ends, in any way, and then the guard ends the group. While the guard lives, the number of the group cannot be reused.
 */
const SCRIPT = `
(
  trap '' TERM INT HUP
  read -r _ <&3
  kill -TERM 0
  sleep ${GRACE_SECS}
  kill -KILL 0
) > /dev/null 2>&1 &
exec "$@" 3<&-
`;

/** A process that ends with this one, also if that is killed, and with it all that it starts, in the background too. */
export function spawnGuarded(
  program: string,
  args: readonly string[],
  options: Pick<SpawnOptions, 'cwd' | 'env'> = {},
): ChildProcess & { readonly stdout: Readable; readonly stderr: Readable } {
  const child = spawn('sh', ['-c', SCRIPT, 'sh', program, ...args], {
    ...options,
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
  });
  const { stdout, stderr } = child;
  if (stdout === null || stderr === null) throw new Error('a child process without pipes');
  return Object.assign(child, { stdout, stderr });
}

/** Ends the processes that are left of a group, and its guard. */
export function killGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL');
  } catch {
    // The group has ended.
  }
}

/** 0: the process has ended. */
function parentOf(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)!.split(' ')[1]);
  } catch {
    return 0;
  }
}

/** Ends this test process when its runner ends: `node --test` and, if npm has started that, the two processes above it. They leave it running. */
export function endWithRunner(): void {
  if (process.platform !== 'linux') return;
  const chain = [process.pid, process.ppid];
  if (process.env['npm_lifecycle_event'] !== undefined)
    for (let level = 0; level < 2; level++) chain.push(parentOf(chain.at(-1)!));
  const look = (): void => {
    if (chain.slice(1).some((pid, level) => parentOf(chain[level]!) !== pid)) process.exit(1);
  };
  setInterval(look, 500).unref();
}
