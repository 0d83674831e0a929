import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Logger } from '../../observe/log.ts';
import type { Ledger } from '../ledger.ts';
import type { Delta } from './read-signal.ts';

/** A complete snapshot that is made from a delta. */
export interface Build {
  readonly identity: string;
  /** Why it could not be made; null: it is being made. */
  readonly error: string | null;
}

/** The snapshots that are being made for a set of workers, one at a time: a newer signal supersedes it. */
export class Builds {
  #build: (Build & { readonly control: AbortController }) | null = null;
  /** Settles when the last build has ended, also one that was aborted. */
  #end: Promise<string | null> | null = null;
  #ledger: Ledger | null = null;

  /**
   * The next router knows what this one has not made. It does not begin again, because the command of a killed router may still be writing: the
   * snapshot has an error there, so clients do not wait for it, and signal it again if they want it.
   */
  keepIn(ledger: Ledger): void {
    this.#ledger = ledger;
    const identity = ledger.building;
    if (identity === null) return;
    this.#build = { identity, error: 'the router before this one did not make it', control: new AbortController() };
  }

  /** The build since the last signal; null: there was none, or its snapshot was signalled. */
  get last(): Build | null {
    return this.#build;
  }

  /**
   * Begins when the build before has ended: an aborted command may still be writing.
   *
   * @param make makes the snapshot. @returns why it can't be made; null: it is made
   * @param then signals it
   */
  begin(identity: string, make: (signal: AbortSignal) => Promise<string | null>, then: () => void): void {
    this.drop();
    const control = new AbortController();
    const build = { identity, error: null, control };
    this.#build = build;
    this.#ledger?.saveBuilding(identity);
    const run = (): Promise<string | null> => make(control.signal);
    const made = this.#end?.then(() => (control.signal.aborted ? null : run())) ?? run();
    this.#end = made;
    void made.then((problem) => {
      if (this.#end === made) this.#end = null;
      if (this.#build !== build) return;
      if (problem !== null) this.#build = { ...build, error: problem };
      else {
        this.#build = null;
        then();
      }
    });
  }

  /** The snapshot is not wanted any more. */
  drop(): void {
    this.stop();
    this.#ledger?.saveBuilding(null);
  }

  /** The router ends. */
  stop(): void {
    this.#build?.control.abort();
    this.#build = null;
  }
}

/** What the operator's command is to make. */
export interface DeltaOrder {
  readonly identity: string;
  readonly delta: Delta;
  /** Where the complete snapshot is expected. */
  readonly directory: string;
  /** Where the client says that its bytes are; '' if it does not say. */
  readonly sourceUrl: string;
}

/**
 * Runs `--swap-delta-hook` for a snapshot: `COMMAND IDENTITY PREVIOUS DIRECTORY`. No shell reads the arguments.
 *
 * @returns why there is no complete snapshot; null: the command ended with 0
 */
export function runDeltaHook(
  command: readonly string[],
  { identity, delta, directory, sourceUrl }: DeltaOrder,
  signal: AbortSignal,
  log: Logger,
): Promise<string | null> {
  const [program, ...args] = command as [string, ...string[]];
  const child = spawn(program, [...args, identity, delta.previous, directory], {
    // A group, with all that it starts: a script would end alone, and what it has started would go on writing.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...process.env,
      TURNOUT_DELTA_COMPRESSION: delta.compression,
      TURNOUT_DELTA_CHECKSUM: delta.checksum,
      TURNOUT_DELTA_SOURCE_URL: sourceUrl,
    },
  });
  let lastLine = '';
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on('line', (line) => {
      if (line.trim() !== '') lastLine = line;
      log.info({ snapshot: identity, line }, '--swap-delta-hook');
    });
  }
  return new Promise((resolve) => {
    const failed = (how: string): void => {
      log.error({ snapshot: identity, error: how }, '--swap-delta-hook made no snapshot');
      resolve(`--swap-delta-hook ${how}`);
    };
    const stop = (): void => {
      if (child.pid === undefined) return;
      try {
        process.kill(-child.pid);
      } catch {
        // All have ended.
      }
    };
    signal.addEventListener('abort', stop, { once: true });
    child.once('error', (error) => {
      if (child.pid === undefined) failed(`could not run: ${error.message}`);
    });
    // One that was aborted is over when it has ended.
    child.once('close', (status, killedBy) => {
      signal.removeEventListener('abort', stop);
      if (status === 0) resolve(null);
      else failed(`ended with ${status ?? killedBy}${lastLine === '' ? '' : `: ${lastLine}`}`);
    });
  });
}
