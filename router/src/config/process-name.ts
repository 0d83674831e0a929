import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';

/** Where a process runs: only there its id means something. */
export interface ProcessName {
  readonly host: string;
  /** Machines may have the same host name. */
  readonly boot: string;
  readonly namespace: string;
  readonly pid: number;
}

export const isSamePlace = (a: ProcessName, b: ProcessName): boolean =>
  a.host === b.host && a.boot === b.boot && a.namespace === b.namespace;

export function thisProcess(): ProcessName {
  return { host: hostname(), boot: bootId(), namespace: pidNamespace(), pid: process.pid };
}

/** '': the system has none. */
function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return '';
  }
}

/** Containers of one machine may have the same host name, and other processes with the same ids. '': the system has no namespaces. */
function pidNamespace(): string {
  try {
    return readlinkSync('/proc/self/ns/pid');
  } catch {
    return '';
  }
}
