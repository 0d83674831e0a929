import { readFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';

/** How many files, sockets among them, the process has open. Linux tells by a folder: reading one of 10,000 takes too long for one turn of the event loop. */
class OpenFiles {
  /** -1: not known. */
  count = -1;

  async look(): Promise<void> {
    this.count = await readdir('/proc/self/fd').then(
      // One of them is the folder's own.
      (names) => names.length - 1,
      () => -1,
    );
  }
}

/** Of this process: one look per page of metrics. */
export const openFiles: OpenFiles = new OpenFiles();

/** @returns -1 where the system does not say */
export function maxOpenFiles(): number {
  try {
    return Number(/^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? -1);
  } catch {
    return -1;
  }
}
