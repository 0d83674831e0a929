import { getHeapStatistics } from 'node:v8';
import { version } from '../../config/version.ts';
import { maxOpenFiles, openFiles } from '../open-files.ts';
import { type MetricSpec, buckets, each, one } from './spec.ts';

const maxFiles = maxOpenFiles();

export const processMetrics: readonly MetricSpec[] = [
  {
    name: 'turnout_build_info',
    type: 'gauge',
    help: 'Always 1; its labels are the version of the router and of Node.js.',
    labels: ['version', 'node'],
    read: () => [{ labels: { version, node: process.versions.node }, value: 1 }],
  },
  {
    name: 'process_cpu_seconds_total',
    type: 'counter',
    help: 'User and system CPU time of all threads of the process.',
    read() {
      const { user, system } = process.cpuUsage();
      return one((user + system) / 1e6);
    },
  },
  {
    name: 'process_resident_memory_bytes',
    type: 'gauge',
    help: 'Resident memory of the process.',
    read: () => one(process.memoryUsage.rss()),
  },
  {
    name: 'turnout_memory_bytes',
    type: 'gauge',
    help: "Memory of the main thread, by kind: heap_used and heap_total (V8's heap), external (buffers and native objects outside of it), array_buffers (the part of external in buffers).",
    labels: ['kind'],
    read() {
      const { heapUsed, heapTotal, external, arrayBuffers } = process.memoryUsage();
      return each('kind', [
        ['heap_used', heapUsed],
        ['heap_total', heapTotal],
        ['external', external],
        ['array_buffers', arrayBuffers],
      ]);
    },
  },
  {
    name: 'turnout_heap_limit_bytes',
    type: 'gauge',
    help: "Limit of V8's heap.",
    read: () => one(getHeapStatistics().heap_size_limit),
  },
  {
    name: 'turnout_explain_bytes',
    type: 'gauge',
    help: 'Memory of the last exchanges, which GET /explain and the dashboard show (--explain-buffer-bytes).',
    read: ({ recent }) => (recent === null ? [] : one(recent.bytes)),
  },
  {
    name: 'turnout_explain_exchanges',
    type: 'gauge',
    help: 'Exchanges that GET /explain knows.',
    read: ({ recent }) => (recent === null ? [] : one(recent.size)),
  },
  {
    name: 'process_start_time_seconds',
    type: 'gauge',
    help: 'Start time of the process in seconds since 1970.',
    read: () => one(performance.timeOrigin / 1000),
  },
  {
    name: 'process_open_fds',
    type: 'gauge',
    help: 'Open file descriptors of the process; on Linux only.',
    read: () => (openFiles.count < 0 ? [] : one(openFiles.count)),
  },
  {
    name: 'process_max_fds',
    type: 'gauge',
    help: 'Maximum number of open file descriptors; on Linux only.',
    read: () => (maxFiles < 0 ? [] : one(maxFiles)),
  },
  {
    name: 'turnout_client_connections',
    type: 'gauge',
    help: 'Open client connections.',
    read: ({ ports }) => one(ports.data.connections.size),
  },
  {
    name: 'turnout_refused_connections_total',
    type: 'counter',
    help: 'Client connections that were closed at once, by limit: max_connections, max_connections_per_client, files (open-file limit).',
    labels: ['reason'],
    read: ({ ports }) => each('reason', Object.entries(ports.data.limits.refused)),
  },
  {
    name: 'turnout_event_loop_lag_seconds',
    type: 'histogram',
    help: 'Delay of the event loop, measured with a 20 ms timer; above 0.01 something blocks the loop.',
    read: ({ loopLag }) => buckets('turnout_event_loop_lag_seconds', loopLag.histogram),
  },
  {
    name: 'turnout_stream_delay_seconds',
    type: 'gauge',
    help: 'Present delay of reads of event streams (--stream-coalesce-ms); 0: streams are read as they come.',
    read: ({ pace }) => one((pace?.delayMs ?? 0) / 1000),
  },
  {
    name: 'turnout_stream_reads_delayed_total',
    type: 'counter',
    help: 'Reads of event streams that were delayed (--stream-coalesce-ms).',
    read: ({ pace }) => one(pace?.delayedReads ?? 0),
  },
  {
    name: 'turnout_log_dropped_lines_total',
    type: 'counter',
    help: 'Log lines that were dropped, because the disk is full or the reader of the output is too slow.',
    read: ({ logging }) => one(logging.droppedLines()),
  },
  {
    name: 'turnout_trace_spans_total',
    type: 'counter',
    help: 'Spans of sampled requests, by outcome: exported, dropped (more than 2,048 wait), failed (not accepted by the collector of --otlp-traces-endpoint).',
    labels: ['outcome'],
    read: ({ tracing }) => (tracing === null ? [] : each('outcome', Object.entries(tracing.export.counters))),
  },
];
