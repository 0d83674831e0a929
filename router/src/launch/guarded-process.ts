import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import type { EnginePlan } from './plan.ts';

/** So long an engine whose router is gone may take to end before it is killed. */
const ORPHAN_GRACE_SECS = 10;

/**
 * Runs `$@` as the leader of its process group, with a guard in the group that holds the reading end of a pipe from the
 * router. Nobody writes to that pipe: it ends when the router does, however it does, and then the guard ends the group. As
 * long as the guard lives no other process can be given the number of the group.
 */
const SCRIPT = `
exec 3<&0
(
  trap '' TERM INT HUP
  read -r _ <&3
  kill -TERM $$
  n=0
  while [ $n -lt ${ORPHAN_GRACE_SECS} ] && kill -0 $$; do sleep 1; n=$((n + 1)); done
  kill -KILL -$$
) >/dev/null 2>&1 &
exec "$@" 3<&-
`;

/** An engine's process: it and all that it started are one group, and none of them outlives this process. */
export class GuardedProcess {
  /** Resolves when it has ended, with words how. Never rejects. */
  readonly ended: Promise<string>;
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;

  constructor({ program, args, env }: EnginePlan, onOutput: (text: string) => void) {
    const child = spawn('sh', ['-c', SCRIPT, 'sh', program, ...args], {
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
      env,
    });
    this.#child = child;
    child.stdin.on('error', () => {});
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', onOutput);
    this.ended = new Promise((resolve) => {
      child.once('error', (error) => resolve(error.message));
      // What its leader left behind, and the guard.
      child.once('exit', () => this.kill());
      // All that they printed is here.
      child.once('close', (code, signal) => {
        resolve(signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`);
      });
    });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Asks it to end: engines stop their own processes then. */
  terminate(): void {
    this.#child.kill('SIGTERM');
  }

  /** Ends all of its group at once. */
  kill(): void {
    try {
      if (this.#child.pid !== undefined) process.kill(-this.#child.pid, 'SIGKILL');
    } catch {
      // All of it is gone.
    }
  }
}
