// CPU time and memory of a process and its descendants, from /proc.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined; // the process or thread ended between the listing and the reading
  }
}

function list(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

/** Fields of a stat file from `state` on: the command's name before it may have spaces and brackets. */
function statFields(path: string): string[] | undefined {
  const text = read(path);
  return text?.slice(text.lastIndexOf(')') + 2).split(' ');
}

/** The process and all its descendants. */
export function processTree(root: number): number[] {
  const children = new Map<number, number[]>();
  for (const name of list('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const parent = Number(statFields(`/proc/${name}/stat`)?.[1]);
    const siblings = children.get(parent);
    if (siblings) siblings.push(Number(name));
    else children.set(parent, [Number(name)]);
  }
  const tree = [root];
  for (const pid of tree) tree.push(...(children.get(pid) ?? []));
  return tree;
}

/** CPU time of each thread in nanoseconds. */
export type CpuReading = ReadonlyMap<string, number>;

const tickNs = 1e9 / 100; // USER_HZ is 100 on every Linux that Node runs on

export function readCpu(pids: readonly number[]): CpuReading {
  const threads = new Map<string, number>();
  for (const pid of pids) {
    for (const tid of list(`/proc/${pid}/task`)) {
      const folder = `/proc/${pid}/task/${tid}`;
      const exact = read(`${folder}/schedstat`);
      const stat = exact === undefined ? statFields(`${folder}/stat`) : undefined;
      if (exact !== undefined) threads.set(tid, Number(exact.split(' ')[0]));
      else if (stat) threads.set(tid, (Number(stat[11]) + Number(stat[12])) * tickNs);
    }
  }
  return threads;
}

/** Microseconds between two readings, including new threads. */
export function cpuMicroseconds(before: CpuReading, after: CpuReading): number {
  let ns = 0;
  for (const [tid, spent] of after) ns += spent - (before.get(tid) ?? 0);
  return ns / 1000;
}

/** CPU time of all processes and of the hypervisor since the machine started. */
export function machineMicroseconds(): number {
  // user, nice, system and steal; interrupts are left out, since no process is charged for them
  const ticks = read('/proc/stat')?.split('\n')[0]?.trim().split(/\s+/).slice(1).map(Number) ?? [];
  return ([0, 1, 2, 7].reduce((sum, field) => sum + (ticks[field] ?? 0), 0) * tickNs) / 1000;
}

function statusBytes(pid: number, field: 'VmRSS' | 'VmHWM'): number {
  const match = new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(read(`/proc/${pid}/status`) ?? '');
  return match ? Number(match[1]) * 1024 : 0;
}

export function residentBytes(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + statusBytes(pid, 'VmRSS'), 0);
}

/** Open files and sockets. */
export function openFiles(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + list(`/proc/${pid}/fd`).length, 0);
}

/** Resets the peak: writing 5 sets the kernel's high-water mark to the current resident size (proc(5)). */
export function resetPeak(pids: readonly number[]): void {
  for (const pid of pids) writeFileSync(`/proc/${pid}/clear_refs`, '5');
}

/** The kernel's high-water mark, which misses no peak between two samples. */
export function peakBytes(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + statusBytes(pid, 'VmHWM'), 0);
}
