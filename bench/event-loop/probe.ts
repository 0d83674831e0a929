// Loaded into the router, and into a process that does nothing: measures how long its event loop is held, on the clock and
// in CPU time of its thread, and answers when it is asked.
import { isMainThread } from 'node:worker_threads';

export interface Longest {
  readonly ms: number;
  readonly cpuMs: number;
}

if (isMainThread && process.send !== undefined) {
  const cpuNow = (): number => {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1000;
  };
  let [ms, cpuMs, lastMs, lastCpuMs] = [0, 0, performance.now(), cpuNow()];
  // Busy all the time, so that every turn is seen.
  const spin = (): void => {
    const [nowMs, nowCpuMs] = [performance.now(), cpuNow()];
    ms = Math.max(ms, nowMs - lastMs);
    cpuMs = Math.max(cpuMs, nowCpuMs - lastCpuMs);
    [lastMs, lastCpuMs] = [nowMs, nowCpuMs];
    setTimeout(spin, 0);
  };
  spin();
  process.on('message', () => {
    process.send!({ ms, cpuMs } satisfies Longest);
    [ms, cpuMs, lastMs, lastCpuMs] = [0, 0, performance.now(), cpuNow()];
  });
}
