import { readFileSync } from 'node:fs';

/** Files of the process besides connections, and some connections to engines. */
const LEAST_RESERVE = 32;

/** The limit of open files (Linux: proc(5)); Infinity if it is not known. */
export function openFileLimit(read: () => string = () => readFileSync('/proc/self/limits', 'utf8')): number {
  try {
    const found = /^Max open files\s+(\d+)/m.exec(read());
    return found === null ? Infinity : Number(found[1]);
  } catch {
    return Infinity;
  }
}

/** The connections that clients may have: the rest is for engines. */
export const filesForClients = (limit: number): number =>
  Math.max(1, Math.floor(Math.min(0.75 * limit, limit - LEAST_RESERVE)));
