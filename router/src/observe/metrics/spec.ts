import type { Admission } from '../../admit/admission.ts';
import type { HoldQueue } from '../../choose/hold-queue.ts';
import type { IndexSize } from '../../choose/policy.ts';
import type { SessionHomes } from '../../choose/session-homes.ts';
import type { Breakers } from '../../fleet/breakers.ts';
import type { Discovery } from '../../fleet/discover/kubernetes.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { StallWatch } from '../../fleet/stall-watch.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { Histogram, Timing } from '../durations.ts';
import type { Meters, PolicyCounts, WorkerMeters } from '../meters.ts';
import type { PeerMeters } from '../peer-meters.ts';

type Labels = Record<string, string>;
export interface Sample {
  readonly labels: Labels;
  readonly value: number;
  readonly metricName?: string;
}

/** What the metrics are read from: parts of the router. */
export interface MetricSources {
  readonly meters: Meters;
  readonly fleet: Fleet;
  readonly homes: Pick<SessionHomes, 'size' | 'movesByReason'>;
  readonly ports: {
    readonly data: {
      readonly connections: { readonly size: number };
      readonly limits: { readonly refused: Readonly<Record<string, number>> };
    };
  };
  readonly inFlight: { readonly size: number };
  readonly holdQueue: Pick<HoldQueue, 'counts' | 'oldestMs'>;
  readonly admission: Pick<Admission, 'waiting' | 'queued' | 'shed'>;
  readonly full: { readonly shed: number };
  readonly retryBudget: { readonly usedBytes: number };
  readonly breakers: Breakers;
  readonly stalls: StallWatch;
  readonly loopLag: { readonly histogram: Histogram };
  /** null: event streams are not delayed. */
  readonly pace: { readonly delayMs: number; readonly delayedReads: number } | null;
  readonly logging: { droppedLines(): number };
  readonly found: { readonly discovery: Discovery | null };
  readonly recorder: { readonly state: TrajectoryCounters } | null;
  readonly tinker: { counts(): TinkerCounters } | null;
  readonly swaps: { readonly counters: SwapCounters; readonly lags: Float64Array } | null;
  readonly resume: ResumeCounters | null;
  readonly tracing: { readonly export: { readonly counters: Readonly<Record<string, number>> } } | null;
  /** null: no exchanges are kept. */
  readonly recent: { readonly size: number; readonly bytes: number } | null;
  readonly policyMeters: { readonly byPolicy: ReadonlyMap<string, PolicyCounts> };
  readonly table: { indexSizes(): ReadonlyMap<string, IndexSize> };
  /** null: without `--metrics-compat`. */
  readonly peers: PeerMeters | null;
}

interface ResumeCounters {
  readonly resumed: ReadonlyMap<string, number>;
  readonly unresumed: ReadonlyMap<string, number>;
  readonly resumedTokens: number;
}

export interface SwapCounters {
  readonly engines: () => ReadonlyMap<string, number>;
  readonly ended: ReadonlyMap<string, number>;
  readonly stageSecs: ReadonlyMap<string, ReadonlyMap<string, number>>;
  readonly swapTimes: Histogram;
  readonly waiting: () => number;
  readonly refused: () => number;
  /** Seconds since the oldest swap began that has not ended; 0: no swap is open. */
  readonly openSecs: () => number;
}

export interface TinkerCounters {
  readonly sessions: number;
  readonly sampling: number;
  readonly open: number;
  readonly dropped: number;
  readonly done: number;
  readonly failed: number;
  readonly retried: number;
  readonly adapters: number;
}

export interface TrajectoryCounters {
  readonly stored: number;
  readonly dropped: number;
  readonly pending: number;
  readonly turns: number;
  readonly bytes: number;
  readonly evicted: number;
  readonly evictedLive: number;
  readonly expired: number;
  readonly unknownLogprobs: number;
  readonly unknownVersions: number;
  readonly textTurns: number;
  readonly sentEarly: number;
}

export interface MetricSpec<Sources = MetricSources> {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram' | 'summary';
  readonly help: string;
  /** Labels of the samples, except `le`. */
  readonly labels?: readonly string[];
  readonly read: (sources: Sources) => Sample[];
}

type Read = MetricSpec['read'];

export const counter = <Sources = MetricSources>(
  name: string,
  help: string,
  read: (sources: Sources) => Sample[],
  labels: readonly string[] = [],
): MetricSpec<Sources> => ({ name, type: 'counter', help, labels, read });

export const gauge = <Sources = MetricSources>(...parts: Parameters<typeof counter<Sources>>): MetricSpec<Sources> => ({
  ...counter(...parts),
  type: 'gauge',
});

export const histogram = (name: string, help: string, of: (sources: MetricSources) => Histogram): MetricSpec =>
  histograms(name, help, [], (sources) => [[{}, of(sources)]]);

/** A histogram for each of these labels. */
export const histograms = (
  name: string,
  help: string,
  labels: readonly string[],
  read: (sources: MetricSources) => Iterable<readonly [Labels, Histogram]>,
): MetricSpec => ({
  name,
  type: 'histogram',
  help,
  labels,
  read: (sources) => Array.from(read(sources)).flatMap(([own, of]) => buckets(name, of, own)),
});

/** Summaries without quantiles: with the sum and the count of each, `rate` gives means over any time. */
export const summaries = (
  name: string,
  help: string,
  labels: readonly string[],
  read: (sources: MetricSources) => Iterable<readonly [Labels, Pick<Timing, 'sumSecs' | 'count'>]>,
): MetricSpec => ({
  name,
  type: 'summary',
  help,
  labels,
  read: (sources) =>
    Array.from(read(sources)).flatMap(([own, { sumSecs, count }]) => [
      { metricName: `${name}_sum`, labels: own, value: sumSecs },
      { metricName: `${name}_count`, labels: own, value: count },
    ]),
});

/** A sample for each worker of the fleet. */
export const perWorker =
  (read: (sources: MetricSources, worker: Worker) => number): Read =>
  (sources) =>
    sources.fleet.workers.map((worker) => ({ labels: { worker: worker.url }, value: read(sources, worker) }));

/** A sample for each URL of a worker that was ever there. @param read null: not known, so there is no sample */
export const perUrl =
  (read: (of: WorkerMeters) => number | null): Read =>
  ({ meters }) =>
    [...meters.byWorker].flatMap(([worker, of]) => {
      const value = read(of);
      return value === null ? [] : [{ labels: { worker }, value }];
    });

export const one = (value: number): Sample[] => [{ labels: {}, value }];
export const each = <K extends string>(label: string, entries: Iterable<[K, number]>): Sample[] =>
  Array.from(entries, ([key, value]) => ({ labels: { [label]: key }, value }));

function buckets(name: string, histogram: Histogram, labels: Labels): Sample[] {
  let total = 0;
  const samples: Sample[] = histogram.bounds.map((le, i) => {
    total += histogram.counts[i]!;
    return { metricName: `${name}_bucket`, labels: { ...labels, le: String(le) }, value: total };
  });
  samples.push({ metricName: `${name}_bucket`, labels: { ...labels, le: '+Inf' }, value: histogram.count });
  samples.push({ metricName: `${name}_sum`, labels, value: histogram.sumSecs });
  samples.push({ metricName: `${name}_count`, labels, value: histogram.count });
  return samples;
}
