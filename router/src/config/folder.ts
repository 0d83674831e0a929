import { mkdirSync, mkdtempSync, rmdirSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { Config } from './options.ts';

/** The folders that a router writes to, with the options that name them. */
export const foldersOf = ({ dataDir, logDir }: Config): [flag: string, path: string][] => [
  ...(dataDir === undefined ? [] : [['--data-dir', dataDir] satisfies [string, string]]),
  ...(logDir === undefined ? [] : [['--log-dir', logDir] satisfies [string, string]]),
];

/**
 * Creates a folder that an option names, with its parents, or throws an error with a message for the user. One level at
 * a time: Node's recursive mkdir never returns if a parent accepts no folder (`/proc/x`; Node 24.21).
 */
export function makeFolder(option: string, path: string): void {
  const missing = missingLevels(option, path);
  for (const level of missing) {
    try {
      mkdirSync(level);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // Another process created it in the meantime.
      if (code !== 'EEXIST')
        throw new Error(`${option} ${path}: ${level} can't be created (${code})`, { cause: error });
    }
  }
  if (missing.length === 0) requireWritable(option, path, resolve(path));
}

/** The same checks without creating anything. */
export function checkFolder(option: string, path: string): void {
  const [first] = missingLevels(option, path);
  requireWritable(option, path, first === undefined ? resolve(path) : dirname(first));
}

function missingLevels(option: string, path: string): string[] {
  const missing: string[] = [];
  for (let level = resolve(path); ; level = dirname(level)) {
    const found = statSync(level, { throwIfNoEntry: false });
    if (found?.isDirectory() === true) return missing.toReversed();
    if (found !== undefined) throw new Error(`${option} ${path}: ${level} is a file, not a folder`);
    missing.push(level);
  }
}

function requireWritable(option: string, path: string, folder: string): void {
  try {
    // Permissions are not enough: a read-only file system and /proc refuse root too.
    rmdirSync(mkdtempSync(join(folder, '.turnout-')));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // What writes there tries again until there is space, and the log says so: a router on a full disk starts all the same.
    if (code === 'ENOSPC' || code === 'EDQUOT') return;
    throw new Error(`${option} ${path}: ${folder} is not writable (${code})`, { cause: error });
  }
}
