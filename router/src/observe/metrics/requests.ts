import { type MetricSpec, buckets, each, one } from './spec.ts';

/** What becomes of requests, and where they wait. */
export const requestMetrics: readonly MetricSpec[] = [
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
    help: 'Requests refused by their head: malformed, too large, or with a Content-Length beyond --max-payload-size. turnout_errors_total counts them too, turnout_requests_total does not.',
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
];
