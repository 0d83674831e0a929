import { readdir } from 'node:fs/promises';
import { getHeapStatistics } from 'node:v8';
import { version } from '../../config/version.ts';
import { openFileLimit } from '../../wire/open-files.ts';
import { type MetricSpec, counter, each, gauge, histogram, one } from './spec.ts';

const maxFiles = openFileLimit();

/** null: not known. */
let openFiles: number | null = null;

/** For the next scrape; asynchronously, because Linux lists the open files in a folder. */
export async function countOpenFiles(): Promise<void> {
  // One is the open folder itself.
  openFiles = await readdir('/proc/self/fd').then(
    (names) => names.length - 1,
    () => null,
  );
}

export const processMetrics: readonly MetricSpec[] = [
  gauge(
    'turnout_build_info',
    'Always 1; its labels are the version of the router and of Node.js.',
    () => [{ labels: { version, node: process.versions.node }, value: 1 }],
    ['version', 'node'],
  ),
  counter('process_cpu_seconds_total', 'User and system CPU time of all threads of the process.', () => {
    const { user, system } = process.cpuUsage();
    return one((user + system) / 1e6);
  }),
  gauge('process_resident_memory_bytes', 'Resident memory of the process.', () => one(process.memoryUsage.rss())),
  gauge(
    'turnout_memory_bytes',
    "Memory of the main thread, by kind: heap_used and heap_total (V8's heap), external (buffers and native objects outside of it), array_buffers (the part of external in buffers).",
    () => {
      const { heapUsed, heapTotal, external, arrayBuffers } = process.memoryUsage();
      return each('kind', [
        ['heap_used', heapUsed],
        ['heap_total', heapTotal],
        ['external', external],
        ['array_buffers', arrayBuffers],
      ]);
    },
    ['kind'],
  ),
  gauge('turnout_heap_limit_bytes', "Limit of V8's heap.", () => one(getHeapStatistics().heap_size_limit)),
  gauge(
    'turnout_explain_bytes',
    'Memory of the last exchanges, which GET /explain and the dashboard show (--explain-buffer-bytes).',
    ({ recent }) => (recent === null ? [] : one(recent.bytes)),
  ),
  gauge('turnout_explain_exchanges', 'Exchanges that GET /explain knows.', ({ recent }) =>
    recent === null ? [] : one(recent.size),
  ),
  gauge('process_start_time_seconds', 'Start time of the process in seconds since 1970.', () =>
    one(performance.timeOrigin / 1000),
  ),
  gauge('process_open_fds', 'Open file descriptors of the process; on Linux only.', () =>
    openFiles === null ? [] : one(openFiles),
  ),
  gauge('process_max_fds', 'Maximum number of open file descriptors; on Linux only.', () =>
    maxFiles === Infinity ? [] : one(maxFiles),
  ),
  gauge('turnout_client_connections', 'Open client connections.', ({ ports }) => one(ports.data.connections.size)),
  counter(
    'turnout_refused_connections_total',
    'Client connections that were closed at once, by limit: max_connections, max_connections_per_client, files (open-file limit).',
    ({ ports }) => each('reason', Object.entries(ports.data.limits.refused)),
    ['reason'],
  ),
  histogram(
    'turnout_event_loop_lag_seconds',
    'Delay of the event loop, measured with a 20 ms timer; above 0.01 something blocks the loop.',
    ({ loopLag }) => loopLag.histogram,
  ),
  gauge(
    'turnout_stream_delay_seconds',
    'Present delay of reads of event streams (--stream-coalesce-ms); 0: streams are read as they come.',
    ({ pace }) => one((pace?.delayMs ?? 0) / 1000),
  ),
  counter(
    'turnout_stream_reads_delayed_total',
    'Reads of event streams that were delayed (--stream-coalesce-ms).',
    ({ pace }) => one(pace?.delayedReads ?? 0),
  ),
  counter(
    'turnout_log_dropped_lines_total',
    'Log lines that were dropped, because the disk is full or the reader of the output is too slow.',
    ({ logging }) => one(logging.droppedLines()),
  ),
  counter(
    'turnout_trace_spans_total',
    'Spans of sampled requests, by outcome: exported, dropped (more than 2,048 wait), failed (not accepted by the collector of --otlp-traces-endpoint).',
    ({ tracing }) => (tracing === null ? [] : each('outcome', Object.entries(tracing.export.counters))),
    ['outcome'],
  ),
];
