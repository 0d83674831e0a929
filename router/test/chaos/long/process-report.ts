import { readdirSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';

/** How a process is, as it sees itself. */
export interface ProcessReport {
  /** heapUsed + external, after a collection where one was asked for. */
  readonly usedBytes: number;
  readonly rssBytes: number;
  readonly openFiles: number;
  /** What keeps its loop alive, by kind: sockets, timers, servers. */
  readonly resources: Readonly<Record<string, number>>;
  /** How late its loop was since the last report that began anew, ms. */
  readonly loop: { readonly p50Ms: number; readonly p99Ms: number; readonly maxMs: number };
}

export type Question = 'report' | 'report after gc' | 'begin anew' | 'stop';

/** What is recorded is the time between two looks: this far apart when nothing is late. */
const RESOLUTION_MS = 10;

/** Makes this process answer its parent's questions. `more`: what else it tells with each report. */
export function answerQuestions(more: () => object, stop: () => Promise<void>): void {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  histogram.enable();
  const late = (ns: number): number => Math.max(0, ns / 1e6 - RESOLUTION_MS);
  const report = (): ProcessReport => {
    const { heapUsed, external, rss } = process.memoryUsage();
    const resources: Record<string, number> = {};
    for (const kind of process.getActiveResourcesInfo()) resources[kind] = (resources[kind] ?? 0) + 1;
    const [p50Ms, p99Ms] = [50, 99].map((share) => late(histogram.percentile(share))) as [number, number];
    return {
      usedBytes: heapUsed + external,
      rssBytes: rss,
      openFiles: readdirSync('/proc/self/fd').length,
      resources,
      loop: { p50Ms, p99Ms, maxMs: late(histogram.max) },
    };
  };
  process.on('message', ({ n, question }: { n: number; question: Question }) => {
    if (question === 'report after gc') globalThis.gc?.();
    if (question === 'begin anew') histogram.reset();
    if (question === 'stop') void stop().then(() => process.disconnect());
    else process.send!({ n, report: { ...report(), ...more() } });
  });
}
