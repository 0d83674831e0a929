import { totalmem } from 'node:os';

const MAX_DEFAULT_BYTES = 8 * 1024 ** 3;
const SHARE = 0.1;

/**
 * A session without a request for this long counts as over: its turns are evicted before those of other sessions. A session counts
 * as over at once when its end is reported.
 */
export const SESSION_IDLE_MS = 3_600_000;

/** The memory that this process may use, and which limit that is. */
interface MachineMemory {
  readonly bytes: number;
  readonly from: 'cgroup' | 'ram';
}

/** @param constrained the limit of the cgroup; 0, or more than the RAM: there is no limit */
export function machineMemory(ram = totalmem(), constrained = process.constrainedMemory()): MachineMemory {
  return constrained > 0 && constrained < ram ? { bytes: constrained, from: 'cgroup' } : { bytes: ram, from: 'ram' };
}

/** How much a cache of turns may take where its option is not set: 10 % of that memory, at most 8 GiB. */
export function defaultMemoryBytes({ bytes } = machineMemory()): number {
  return Math.min(MAX_DEFAULT_BYTES, Math.floor(SHARE * bytes));
}
