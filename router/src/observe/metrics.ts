import { setImmediate as nextTurn } from 'node:timers/promises';
import { Registry } from 'prom-client';
import type { Admission } from '../admit/admission.ts';
import type { Breakers } from '../fleet/breakers.ts';
import type { Discovery } from '../fleet/discover/kubernetes.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { StallWatch } from '../fleet/stalls.ts';
import { type Histogram, type Meters, SECONDS_BUCKETS } from './meters.ts';

type Labels = Record<string, string>;
interface Sample {
  readonly labels: Labels;
  readonly value: number;
  readonly metricName?: string;
}

/** What the metrics are read from. */
export interface MetricSources {
  readonly meters: Meters;
  readonly fleet: Fleet;
  readonly openConnections: () => number;
  readonly inFlight: () => number;
  readonly held: () => Map<string, number>;
  readonly admission: () => Pick<Admission, 'waiting' | 'queued' | 'shed'>;
  readonly shedByFullWorkers: () => number;
  readonly refusedConnections: () => Readonly<Record<string, number>>;
  readonly retryBufferBytes: () => number;
  readonly breakers: Breakers;
  readonly stalls: StallWatch;
  readonly loopLag: Histogram;
  readonly droppedLogLines: () => number;
  readonly discovery: () => Discovery | null;
  readonly trajectories: () => TrajectoryCounters | null;
}

/** What the store of trajectories tells; null where there is none. */
interface TrajectoryCounters {
  readonly stored: number;
  readonly dropped: number;
  readonly pending: number;
  readonly turns: number;
  readonly bytes: number;
  readonly evicted: number;
}

interface MetricSpec {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly read: (sources: MetricSources) => Sample[];
}

const one = (value: number): Sample[] => [{ labels: {}, value }];
const each = <K extends string>(label: string, entries: Iterable<[K, number]>): Sample[] =>
  Array.from(entries, ([key, value]) => ({ labels: { [label]: key }, value }));

const discovered = (discovery: Discovery | null, read: (discovery: Discovery) => number): Sample[] =>
  discovery === null ? [] : one(read(discovery));

const kept = (counters: TrajectoryCounters | null, name: keyof TrajectoryCounters): Sample[] =>
  counters === null || counters[name] < 0 ? [] : one(counters[name]);

function buckets(name: string, histogram: Histogram): Sample[] {
  let total = 0;
  const samples: Sample[] = SECONDS_BUCKETS.map((le, i) => {
    total += histogram.counts[i]!;
    return { metricName: `${name}_bucket`, labels: { le: String(le) }, value: total };
  });
  samples.push({ metricName: `${name}_bucket`, labels: { le: '+Inf' }, value: histogram.count });
  samples.push({ metricName: `${name}_sum`, labels: {}, value: histogram.sumSecs });
  samples.push({ metricName: `${name}_count`, labels: {}, value: histogram.count });
  return samples;
}

/** Every metric, once: name, type, help, and where its numbers are. */
export const metrics: readonly MetricSpec[] = [
  {
    name: 'turnout_requests_total',
    type: 'counter',
    help: 'Exchanges that ended, by how: complete (whatever the status), refused by the router, cut, client_left.',
    read: ({ meters }) => each('outcome', Object.entries(meters.outcomes)),
  },
  {
    name: 'turnout_requests_in_flight',
    type: 'gauge',
    help: 'Exchanges under way, those that wait too.',
    read: ({ inFlight }) => one(inFlight()),
  },
  {
    name: 'turnout_request_duration_seconds',
    type: 'histogram',
    help: 'Seconds from the request head to the end of the answer.',
    read: ({ meters }) => buckets('turnout_request_duration_seconds', meters.duration),
  },
  {
    name: 'turnout_time_to_first_byte_seconds',
    type: 'histogram',
    help: 'Seconds from the request head to the first byte of the answer.',
    read: ({ meters }) => buckets('turnout_time_to_first_byte_seconds', meters.firstByte),
  },
  {
    name: 'turnout_errors_total',
    type: 'counter',
    help: "The router's own errors, by code (also in the answer's x-turnout-error).",
    read: ({ meters }) => each('code', meters.errors),
  },
  {
    name: 'turnout_plugin_failures_total',
    type: 'counter',
    help: 'Times that a plugin threw, answered something else than its phase may, or took longer than --plugin-timeout-ms, by plugin and phase.',
    read: ({ meters }) =>
      [...meters.pluginFailures].flatMap(([plugin, phases]) =>
        Array.from(phases, ([phase, value]) => ({ labels: { plugin, phase }, value })),
      ),
  },
  {
    name: 'turnout_refused_heads_total',
    type: 'counter',
    help: 'Requests refused before they became exchanges: malformed or oversized heads.',
    read: ({ meters }) => one(meters.refusedHeads),
  },
  {
    name: 'turnout_retries_total',
    type: 'counter',
    help: 'Attempts that failed and were followed by another, by how they failed (connect, stale, reset, status).',
    read: ({ meters }) => each('failure', meters.retries),
  },
  {
    name: 'turnout_upstream_truncated_total',
    type: 'counter',
    help: 'Answers that engines broke off after their first byte.',
    read: ({ meters }) => one([...meters.byWorker.values()].reduce((sum, { cut }) => sum + cut, 0)),
  },
  {
    name: 'turnout_held_requests',
    type: 'gauge',
    help: 'Exchanges let in that wait for a worker, by reason: workers_full, or that of their policy.',
    read: ({ held }) => each('reason', held()),
  },
  {
    name: 'turnout_queue_depth',
    type: 'gauge',
    help: 'Exchanges that wait to be let in, by the limit that they met: concurrency, rate.',
    read: ({ admission }) => each('reason', Object.entries(admission().waiting)),
  },
  {
    name: 'turnout_requests_queued_total',
    type: 'counter',
    help: 'Exchanges that had to wait to be let in, by the same.',
    read: ({ admission }) => each('reason', Object.entries(admission().queued)),
  },
  {
    name: 'turnout_queue_wait_seconds',
    type: 'histogram',
    help: 'Seconds that they waited, whether they were let in then or not.',
    read: ({ meters }) => buckets('turnout_queue_wait_seconds', meters.queueWait),
  },
  {
    name: 'turnout_shed_total',
    type: 'counter',
    help: 'Exchanges refused for want of room, by reason: queue_full, queue_timeout, workers_full, heap (short of memory).',
    read: ({ admission, shedByFullWorkers }) =>
      each('reason', Object.entries({ ...admission().shed, workers_full: shedByFullWorkers() })),
  },
  {
    name: 'turnout_retry_buffer_bytes',
    type: 'gauge',
    help: 'Request body bytes kept for another try.',
    read: ({ retryBufferBytes }) => one(retryBufferBytes()),
  },
  {
    name: 'turnout_client_connections',
    type: 'gauge',
    help: 'Open client connections.',
    read: ({ openConnections }) => one(openConnections()),
  },
  {
    name: 'turnout_refused_connections_total',
    type: 'counter',
    help: 'Client connections closed as they came, by the limit: max_connections, max_connections_per_client, files (the system allows no more).',
    read: ({ refusedConnections }) => each('reason', Object.entries(refusedConnections())),
  },
  {
    name: 'turnout_event_loop_lag_seconds',
    type: 'histogram',
    help: 'How late the event loop came to a timer of 20 ms: what is over 0.01 is a fault.',
    read: ({ loopLag }) => buckets('turnout_event_loop_lag_seconds', loopLag),
  },
  {
    name: 'turnout_log_dropped_lines_total',
    type: 'counter',
    help: 'Lines of the log that were not written: the disk is full, or nobody reads the output.',
    read: ({ droppedLogLines }) => one(droppedLogLines()),
  },
  {
    name: 'turnout_workers',
    type: 'gauge',
    help: 'Registered workers, by whether they get new work.',
    read: ({ fleet }) =>
      each('eligible', [
        ['true', fleet.eligible.length],
        ['false', fleet.workers.length - fleet.eligible.length],
      ]),
  },
  {
    name: 'turnout_discovery_connected',
    type: 'gauge',
    help: '--service-discovery: 1: the API server tells of pods; 0: the last known workers stay.',
    read: ({ discovery }) => discovered(discovery(), ({ isConnected }) => Number(isConnected)),
  },
  {
    name: 'turnout_discovered_workers',
    type: 'gauge',
    help: 'Registered workers that --service-discovery found.',
    read: ({ discovery }) => discovered(discovery(), ({ workerCount }) => workerCount),
  },
  {
    name: 'turnout_worker_in_flight',
    type: 'gauge',
    help: 'Exchanges under way at a worker.',
    read: ({ fleet }) => fleet.workers.map((w) => ({ labels: { worker: w.url }, value: fleet.load(w) })),
  },
  {
    name: 'turnout_worker_healthy',
    type: 'gauge',
    help: '1: passed its last health checks.',
    read: ({ fleet }) => fleet.workers.map((w) => ({ labels: { worker: w.url }, value: Number(w.isHealthy) })),
  },
  {
    name: 'turnout_worker_breaker_state',
    type: 'gauge',
    help: "A worker's circuit breaker: 0 closed, 1 open, 2 half-open.",
    read: ({ fleet, breakers }) =>
      fleet.workers.map((w) => ({
        labels: { worker: w.url },
        value: { closed: 0, open: 1, half_open: 2 }[breakers.stateOf(w)],
      })),
  },
  {
    name: 'turnout_breaker_panics_total',
    type: 'counter',
    help: 'Times that a failing worker stayed in, since too many others were out (--max-ejected-percent).',
    read: ({ breakers }) => one(breakers.panics),
  },
  {
    name: 'turnout_worker_stalled',
    type: 'gauge',
    help: '1: has event streams open and said nothing on any of them for 30 s.',
    read: ({ fleet, stalls }) =>
      fleet.workers.map((w) => ({ labels: { worker: w.url }, value: Number(stalls.isStalled(w)) })),
  },
  {
    name: 'turnout_worker_connections',
    type: 'gauge',
    help: 'Open connections to a worker, idle ones too.',
    read: ({ fleet }) => fleet.workers.map((w) => ({ labels: { worker: w.url }, value: w.pool.openCount })),
  },
  {
    name: 'turnout_worker_responses_total',
    type: 'counter',
    help: "A worker's answers, by the first digit of their status.",
    read: ({ meters }) =>
      [...meters.byWorker].flatMap(([worker, { byStatusClass }]) =>
        Array.from(byStatusClass, (value, digit) => ({ labels: { worker, status: `${digit}xx` }, value })).filter(
          ({ value }) => value > 0,
        ),
      ),
  },
  {
    name: 'turnout_worker_failed_attempts_total',
    type: 'counter',
    help: 'Attempts at a worker that ended before an answer.',
    read: ({ meters }) => [...meters.byWorker].map(([worker, m]) => ({ labels: { worker }, value: m.failedAttempts })),
  },
  {
    name: 'turnout_worker_cut_answers_total',
    type: 'counter',
    help: 'The same, by worker.',
    read: ({ meters }) => [...meters.byWorker].map(([worker, m]) => ({ labels: { worker }, value: m.cut })),
  },
  {
    name: 'turnout_trajectory_stored_total',
    type: 'counter',
    help: 'Captured turns that were written to the store.',
    read: ({ trajectories }) => kept(trajectories(), 'stored'),
  },
  {
    name: 'turnout_trajectory_dropped_total',
    type: 'counter',
    help: 'Captured turns, or parts of them, that could not be kept: a full disk, a store that is away, more than fits.',
    read: ({ trajectories }) => kept(trajectories(), 'dropped'),
  },
  {
    name: 'turnout_trajectory_evicted_total',
    type: 'counter',
    help: 'Turns that made room for newer ones (--store-memory-bytes).',
    read: ({ trajectories }) => kept(trajectories(), 'evicted'),
  },
  {
    name: 'turnout_trajectory_pending_turns',
    type: 'gauge',
    help: 'Captured turns that wait to be written.',
    read: ({ trajectories }) => kept(trajectories(), 'pending'),
  },
  {
    name: 'turnout_trajectory_turns',
    type: 'gauge',
    help: 'Turns in the store.',
    read: ({ trajectories }) => kept(trajectories(), 'turns'),
  },
  {
    name: 'turnout_trajectory_bytes',
    type: 'gauge',
    help: 'What they take there, where the store can tell.',
    read: ({ trajectories }) => kept(trajectories(), 'bytes'),
  },
];

/** Exposes the flat counters through prom-client's registry: a metric there is anything that answers `get()`. */
export function createRegistry(sources: MetricSources): Registry {
  const registry = new Registry();
  for (const { name, type, help, read } of metrics) {
    const metric = {
      name,
      type,
      help,
      aggregator: 'sum',
      get: () => Promise.resolve({ name, help, type, aggregator: 'sum', values: read(sources) }),
      reset: () => {},
    };
    registry.registerMetric(metric as never);
  }
  return registry;
}

/** The text that scrapers get. One metric at a turn of the event loop: those of 500 workers would take it for 10 ms. */
export async function metricsPage(registry: Registry): Promise<string> {
  const parts: string[] = [];
  for (const { name } of metrics) {
    parts.push(await registry.getSingleMetricAsString(name));
    await nextTurn();
  }
  return `${parts.join('\n\n')}\n`;
}
