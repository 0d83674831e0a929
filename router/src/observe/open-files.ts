import { readFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';

/** The number of open files and sockets, read asynchronously because Linux lists them in a folder. */
class OpenFiles {
  /** -1: not known. */
  count = -1;

  async look(): Promise<void> {
    this.count = await readdir('/proc/self/fd').then(
      // One is the open folder itself.
      (names) => names.length - 1,
      () => -1,
    );
  }
}

/** Updated for each scrape. */
export const openFiles: OpenFiles = new OpenFiles();

/** @returns -1 if not known */
export function maxOpenFiles(): number {
  try {
    return Number(/^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? -1);
  } catch {
    return -1;
  }
}
