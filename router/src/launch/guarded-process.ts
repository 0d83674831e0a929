import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import type { EnginePlan } from './plan.ts';

/** Seconds that an engine has to stop after its router has ended. */
const ORPHAN_GRACE_SECS = 10;
/** After its end the output of an engine is read for so long: a process that it put into a session of its own may keep the pipes open. */
const LAST_OUTPUT_MS = 1_000;

/**
 * Runs `$@` as the leader of its process group, with a guard in the group that reads from a pipe of the router. Nothing
 * is written to that pipe: it closes when the router ends, in any way, and then the guard ends the group. While the
 * guard lives, the group's number cannot be reused.
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

/** An engine's process and all that it started are one group, which ends when this router ends. */
export class GuardedProcess {
  /** Resolves with a description when the process has ended, or could not be started. Never rejects. */
  readonly ended: Promise<string>;
  /** null: it could not be started. */
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable> | null;

  constructor({ program, args, env }: EnginePlan, onLine: (line: string) => void) {
    let child: ChildProcessByStdio<Writable, Readable, Readable>;
    try {
      child = spawn('sh', ['-c', SCRIPT, 'sh', program, ...args], {
        detached: true,
        stdio: ['pipe', 'pipe', 'pipe'],
        env,
      });
    } catch (error) {
      // The system lacks memory for it.
      this.#child = null;
      this.ended = Promise.resolve((error as Error).message);
      return;
    }
    this.#child = child;
    // Without a further open file there are no pipes either, and `error` follows.
    const pipes: Partial<typeof child> = child;
    pipes.stdin?.on('error', () => {});
    const outputs = [pipes.stdout, pipes.stderr].filter((stream) => stream !== undefined && stream !== null);
    for (const stream of outputs) {
      const lines = new LineSplitter(onLine);
      stream.setEncoding('utf8').on('data', (text: string) => lines.push(text));
      stream.once('close', () => lines.end());
    }
    this.ended = new Promise((resolve) => {
      child.once('error', (error) => resolve(error.message));
      let timer: NodeJS.Timeout | undefined;
      child.once('exit', () => {
        // The leader's remaining processes, and the guard.
        this.kill();
        timer = setTimeout(() => outputs.forEach((stream) => stream.destroy()), LAST_OUTPUT_MS);
      });
      // Nothing more is read.
      child.once('close', (code, signal) => {
        clearTimeout(timer);
        resolve(signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`);
      });
    });
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** SIGTERM to the leader: engines stop their own processes. */
  terminate(): void {
    this.#child?.kill('SIGTERM');
  }

  /** SIGKILL to the group. */
  kill(): void {
    try {
      if (this.pid !== undefined) process.kill(-this.pid, 'SIGKILL');
    } catch {
      // The group has ended.
    }
  }
}

/** Longer lines are split. */
const MAX_LINE_CHARS = 16_384;

/** Splits the output of a process into lines. The carriage returns of a progress bar end lines too. */
export class LineSplitter {
  readonly #onLine: (line: string) => void;
  #rest = '';

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  push(text: string): void {
    const lines = (this.#rest + text).split(/\r?\n|\r(?!$)/);
    this.#rest = lines.pop()!;
    for (const line of lines) if (line !== '') this.#onLine(line);
    if (this.#rest.length > MAX_LINE_CHARS) this.end();
  }

  /** The last line may have no line break. */
  end(): void {
    if (this.#rest !== '') this.#onLine(this.#rest);
    this.#rest = '';
  }
}
