// Loaded into the router and into an idle process: measures each turn of the event loop in elapsed time and in CPU time
// of its thread (without other processes and V8's helper threads), and reports on request.
import { Session } from 'node:inspector';
import { type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import { isMainThread } from 'node:worker_threads';

/** Requests the turns since the last request; `explains`: from now on with a profile. */
export interface Asked {
  readonly explains: boolean;
}

export interface Longest {
  /** The longest turn in elapsed time. */
  readonly ms: number;
  /** The longest turn in CPU time of the thread. */
  readonly cpuMs: number;
  /** The pauses of the garbage collector in that turn. */
  readonly gcMs: number;
  /** Where that turn was spent, by samples of a profiler; '' without a profile. */
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
    // Updates the kernel's count for this thread, which is otherwise as old as its last tick (4 ms, Linux 6.1).
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
  // Always busy, so that every turn is seen.
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

/** The functions with the most samples in a turn, without their callees. */
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
