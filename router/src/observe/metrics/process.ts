import { type MetricSpec, buckets, each, one } from './spec.ts';

/** The router as a process: connections, the event loop, the log. */
export const processMetrics: readonly MetricSpec[] = [
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
];
