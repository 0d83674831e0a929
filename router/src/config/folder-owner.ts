import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const FILE = 'router.pid';

/**
 * Writes this process's id into the folder, for the next router that starts there. Several routers may share a folder
 * during an upgrade without downtime.
 * @returns the id of another running router, or null; and what removes the own id
 */
export function markFolder(folder: string): { readonly otherPid: number | null; readonly unmark: () => void } {
  const path = join(folder, FILE);
  const before = Number(read(path));
  try {
    writeFileSync(path, `${process.pid}\n`);
  } catch {
    // On a full disk the next router is not warned.
  }
  return {
    otherPid: Number.isInteger(before) && before > 0 && before !== process.pid && isRunning(before) ? before : null,
    unmark() {
      if (Number(read(path)) === process.pid) rmSync(path, { force: true });
    },
  };
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

export function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    // EPERM: it belongs to another user.
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}
