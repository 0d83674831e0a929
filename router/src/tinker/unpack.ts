import { type ReadEntry, x } from 'tar';

/** What is unpacked at most. */
export interface UnpackLimits {
  readonly entries: number;
  /** Of all files together, unpacked. */
  readonly bytes: number;
}

/** Small, because all that a chunk decompresses to is in memory at once: up to 1,032 times as much. */
const CHUNK_BYTES = 65_536;

const FILES: ReadonlySet<string> = new Set(['File', 'OldFile', 'ContiguousFile']);

/**
 * Unpacks the files of a tar archive, with or without gzip, into an existing, empty folder. Blocks the thread. Throws at the first entry
 * that is not a plain file or folder below `into`, beyond a limit, or damaged; what was unpacked until then is left in the folder.
 */
export function unpack(archive: string, into: string, { entries, bytes }: UnpackLimits): void {
  let count = 0;
  let total = 0;
  const check = (path: string, entry: ReadEntry): boolean => {
    if (++count > entries) throw new Error(`it has more than ${entries} entries`);
    const isFolder = entry.type === 'Directory';
    if (!isFolder && !FILES.has(entry.type))
      throw new Error(`its entry ${quoted(path)} is a ${entry.type}, not a file`);
    // Python's tarfile writes the archive's root as "/".
    if (isFolder && /^[./]*$/.test(path) && !path.includes('..')) return false;
    if (path.startsWith('/') || path.split('/').includes('..'))
      throw new Error(`the path of its entry ${quoted(path)} leaves the folder`);
    // Folders are made for the files in them.
    if (isFolder) return false;
    total += entry.size;
    if (total > bytes) throw new Error(`its files have more than ${bytes} bytes`);
    // Engines may run as another user.
    entry.mode = 0o644;
    return true;
  };
  x({
    sync: true,
    file: archive,
    cwd: into,
    strict: true,
    preserveOwner: false,
    noMtime: true,
    maxReadSize: CHUNK_BYTES,
    filter: (path, entry) => check(path, entry as ReadEntry),
  });
  if (count === 0) throw new Error('it has no entries');
}

const quoted = (path: string): string => JSON.stringify(path.slice(0, 200));
