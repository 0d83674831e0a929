import { randomUUID } from 'node:crypto';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const FILE = 'swap.owner';
const LOOK_MS = 100;

/** What the file has, in one line. */
interface Claim {
  readonly id: string;
  readonly pid: number;
  /** When that process was started: later processes may have its id. */
  readonly start: string;
  readonly isAtWork: boolean;
}

/**
 * The one router that loads weights, of those that use a data directory: during an upgrade two of them run. A file in the directory names the
 * router that was started last. It waits for the swap of the one before, which would look like one that a killed router has left; the one before
 * begins no other.
 */
export class SwapOwner {
  readonly #path: string | null;
  readonly #id = randomUUID();
  #isAtWork = false;

  /** @param folder left out: no other router has the same state */
  constructor(folder: string | undefined) {
    this.#path = folder === undefined ? null : join(folder, FILE);
  }

  /** Resolves when no other running router replaces weights: from then on this one may. @param onWait called once, if one does */
  async claim(onWait: (pid: number) => void): Promise<void> {
    let isTold = false;
    for (let other = this.#other(); other?.isAtWork === true; other = this.#other()) {
      if (!isTold) onWait(other.pid);
      isTold = true;
      await delay(LOOK_MS);
    }
    this.#write();
  }

  /** A router that was started later runs. */
  get isTaken(): boolean {
    return this.#other() !== null;
  }

  /** Whether the next router has to wait. */
  set isAtWork(isAtWork: boolean) {
    if (isAtWork === this.#isAtWork) return;
    this.#isAtWork = isAtWork;
    if (!this.isTaken) this.#write();
  }

  release(): void {
    if (this.#path !== null && this.#read()?.id === this.#id) rmSync(this.#path, { force: true });
  }

  /** Another router that runs. */
  #other(): Claim | null {
    const claim = this.#read();
    return claim === null || claim.id === this.#id || startOf(claim.pid) !== claim.start ? null : claim;
  }

  #read(): Claim | null {
    if (this.#path === null) return null;
    try {
      const [id, pid, start, state] = readFileSync(this.#path, 'utf8').trim().split(' ');
      return { id: id!, pid: Number(pid), start: start ?? '', isAtWork: state === 'at-work' };
    } catch {
      return null;
    }
  }

  #write(): void {
    const start = startOf(process.pid);
    // Only on Linux can two routers listen on one port.
    if (this.#path === null || start === null) return;
    try {
      writeFileSync(this.#path, `${this.#id} ${process.pid} ${start} ${this.#isAtWork ? 'at-work' : 'idle'}\n`);
    } catch {
      // On a full disk the routers do not know of each other.
    }
  }
}

/** The start of a process, in clock ticks since the boot (proc_pid_stat(5)). null: it has ended, or the system is not Linux. */
function startOf(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name of the process, in parentheses, may have any character.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // A zombie has ended, and its parent has not asked for its exit code.
    return fields[0] === 'Z' ? null : (fields[19] ?? null);
  } catch {
    return null;
  }
}
