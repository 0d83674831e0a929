// Loaded into the router, and into a process that does nothing: measures each turn of its event loop, on the clock and in CPU
// time of its thread (what other processes and V8's own threads take is not in that), and answers when it is asked.
import { Session } from 'node:inspector';
import { type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import { isMainThread } from 'node:worker_threads';

/** What is asked for: turns since the last time; `explains`: from now on, what they did as well. */
export interface Asked {
  readonly explains: boolean;
}

export interface Longest {
  /** The longest turn on the clock. */
  readonly ms: number;
  /** The most that the thread was at work in a turn. */
  readonly cpuMs: number;
  /** How much of that turn were pauses of the collector. */
  readonly gcMs: number;
  /** Where that turn was, by samples of a profiler; '' where nobody wanted to know. */
  readonly where: string;
}

interface Turn {
  readonly startUs: number;
  readonly endUs: number;
  readonly cpuMs: number;
}

interface Profile {
  readonly nodes: readonly { id: number; callFrame: { functionName: string; url: string; lineNumber: number } }[];
  readonly startTime: number;
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

const SAMPLE_US = 200;

if (isMainThread && process.send !== undefined) {
  const clockUs = (): number => Number(process.hrtime.bigint() / 1000n);
  const cpuNow = (): number => {
    // Brings the kernel's count for this thread up to date, which else is as old as its last tick (4 ms, Linux 6.1).
    process.cpuUsage();
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1000;
  };
  const originUs = clockUs() - performance.now() * 1000;
  const pauses: { startUs: number; ms: number }[] = [];
  const note = (entries: readonly PerformanceEntry[]): void => {
    for (const { startTime, duration } of entries) pauses.push({ startUs: originUs + startTime * 1000, ms: duration });
  };
  const collector = new PerformanceObserver((list) => note(list.getEntries()));
  collector.observe({ entryTypes: ['gc'] });

  let [ms, lastUs, lastCpuMs] = [0, clockUs(), cpuNow()];
  let most: Turn = { startUs: 0, endUs: 0, cpuMs: 0 };
  // Busy all the time, so that every turn is seen.
  const spin = (): void => {
    const [nowUs, nowCpuMs] = [clockUs(), cpuNow()];
    ms = Math.max(ms, (nowUs - lastUs) / 1000);
    const cpuMs = nowCpuMs - lastCpuMs;
    if (cpuMs > most.cpuMs) most = { startUs: lastUs, endUs: nowUs, cpuMs };
    [lastUs, lastCpuMs] = [nowUs, nowCpuMs];
    setTimeout(spin, 0);
  };
  spin();

  let session: Session | null = null;
  let isProfiling = false;
  const stop = (turn: Turn): string => {
    let where = '';
    if (!isProfiling) return where;
    isProfiling = false;
    session!.post('Profiler.stop', (_error, answer) => (where = whereIn(answer.profile as unknown as Profile, turn)));
    return where;
  };
  process.on('message', ({ explains }: Asked) => {
    note(collector.takeRecords());
    const { startUs, endUs, cpuMs } = most;
    const own = pauses.filter((pause) => pause.startUs >= startUs && pause.startUs < endUs);
    const gcMs = own.reduce((sum, pause) => sum + pause.ms, 0);
    process.send!({ ms, cpuMs, gcMs, where: stop(most) } satisfies Longest);
    if (explains) {
      if (session === null) {
        session = new Session();
        session.connect();
        session.post('Profiler.enable');
        session.post('Profiler.setSamplingInterval', { interval: SAMPLE_US });
      }
      session.post('Profiler.start');
      isProfiling = true;
    }
    pauses.length = 0;
    most = { startUs: 0, endUs: 0, cpuMs: 0 };
    [ms, lastUs, lastCpuMs] = [0, clockUs(), cpuNow()];
  });
}

/** The functions that were seen most often in a turn, themselves and not what they called. */
function whereIn({ nodes, startTime, samples, timeDeltas }: Profile, turn: Turn): string {
  const names = new Map<number, string>();
  for (const { id, callFrame } of nodes) {
    const { functionName, url, lineNumber } = callFrame;
    const file = url.split('/').at(-1)!;
    names.set(id, file === '' ? functionName : `${functionName || 'a function'} (${file}:${lineNumber + 1})`);
  }
  const seen = new Map<string, number>();
  let atUs = startTime;
  for (const [i, id] of samples.entries()) {
    atUs += timeDeltas[i]!;
    if (atUs < turn.startUs || atUs > turn.endUs) continue;
    const name = names.get(id)!;
    seen.set(name, (seen.get(name) ?? 0) + timeDeltas[i]! / 1000);
  }
  const most = [...seen].toSorted(([, a], [, b]) => b - a).slice(0, 4);
  return most.map(([name, ms]) => `${name} ${ms.toFixed(1)}`).join(', ');
}
