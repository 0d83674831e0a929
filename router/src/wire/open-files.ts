import { readFileSync } from 'node:fs';

/** Files that a process has open besides connections, and some connections to engines. */
const LEAST_RESERVE = 32;

/** How many files this process may have open at once; Infinity where the system does not say. (Linux: proc(5).) */
export function openFileLimit(read: () => string = () => readFileSync('/proc/self/limits', 'utf8')): number {
  try {
    const found = /^Max open files\s+(\d+)/m.exec(read());
    return found === null ? Infinity : Number(found[1]);
  } catch {
    return Infinity;
  }
}

/** How many of them clients may have: the rest is for engines, without which no client is served. */
export const filesForClients = (limit: number): number =>
  Math.max(1, Math.floor(Math.min(0.75 * limit, limit - LEAST_RESERVE)));
