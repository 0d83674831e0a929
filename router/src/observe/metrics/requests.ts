import { type MetricSpec, buckets, each, one } from './spec.ts';

export const requestMetrics: readonly MetricSpec[] = [
  {
    name: 'turnout_requests_total',
    type: 'counter',
    help: 'Finished requests, by outcome: complete (any status), refused by the router, cut (truncated), client_left.',
    labels: ['outcome'],
    read: ({ meters }) => each('outcome', Object.entries(meters.outcomes)),
  },
  {
    name: 'turnout_requests_in_flight',
    type: 'gauge',
    help: 'Requests in flight, queued and held ones included.',
    read: ({ inFlight }) => one(inFlight.size),
  },
  {
    name: 'turnout_request_duration_seconds',
    type: 'histogram',
    help: 'Seconds from the request head to the end of the response.',
    read: ({ meters }) => buckets('turnout_request_duration_seconds', meters.duration),
  },
  {
    name: 'turnout_time_to_first_byte_seconds',
    type: 'histogram',
    help: 'Seconds from the request head to the first byte of the response.',
    read: ({ meters }) => buckets('turnout_time_to_first_byte_seconds', meters.firstByte),
  },
  {
    name: 'turnout_time_to_first_token_seconds',
    type: 'histogram',
    help: 'Seconds from the request head to the first byte of the body of an event stream, for generations; queues, holds and failed attempts included.',
    read: ({ meters }) => buckets('turnout_time_to_first_token_seconds', meters.firstToken),
  },
  {
    name: 'turnout_inter_token_gap_seconds',
    type: 'histogram',
    help: 'Mean seconds between two output tokens of an event stream, one observation a stream. A stream without token counts counts its reads as tokens.',
    read: ({ meters }) => buckets('turnout_inter_token_gap_seconds', meters.tokenGap),
  },
  {
    name: 'turnout_request_body_bytes_total',
    type: 'counter',
    help: 'Bytes of request bodies of finished requests.',
    read: ({ meters }) => one(meters.requestBytes),
  },
  {
    name: 'turnout_response_body_bytes_total',
    type: 'counter',
    help: "Bytes of engines' response bodies of finished requests, with the framing of chunked ones.",
    read: ({ meters }) => one(meters.responseBytes),
  },
  {
    name: 'turnout_errors_total',
    type: 'counter',
    help: 'Errors of the router itself, by code (the value of x-turnout-error).',
    labels: ['code'],
    read: ({ meters }) => each('code', meters.errors),
  },
  {
    name: 'turnout_plugin_failures_total',
    type: 'counter',
    help: 'Plugin failures, by plugin and phase: an exception, an invalid result, or --plugin-timeout-ms exceeded.',
    labels: ['plugin', 'phase'],
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
    help: 'Retries, by how the attempt before failed (connect, stale, reset, status, hung; with --resume also cut, cut_hung, aborted).',
    labels: ['failure'],
    read: ({ meters }) => each('failure', meters.retries),
  },
  {
    name: 'turnout_upstream_truncated_total',
    type: 'counter',
    help: 'Responses that engines truncated after their first byte.',
    read: ({ meters }) => one([...meters.byWorker.values()].reduce((sum, { cut }) => sum + cut, 0)),
  },
  {
    name: 'turnout_held_requests',
    type: 'gauge',
    help: 'Admitted requests that wait for a worker, by reason: workers_full, or the reason of the policy.',
    labels: ['reason'],
    read: ({ holdQueue }) => each('reason', holdQueue.counts()),
  },
  {
    name: 'turnout_held_oldest_seconds',
    type: 'gauge',
    help: 'Seconds for which the oldest of the held requests has been held, by reason as for turnout_held_requests.',
    labels: ['reason'],
    read: ({ holdQueue }) =>
      each(
        'reason',
        Array.from(holdQueue.oldestMs(), ([reason, ms]) => [reason, (performance.now() - ms) / 1000] as const),
      ),
  },
  {
    name: 'turnout_queue_depth',
    type: 'gauge',
    help: 'Requests that wait in the queue, by limit: concurrency, rate.',
    labels: ['reason'],
    read: ({ admission }) => each('reason', Object.entries(admission.waiting)),
  },
  {
    name: 'turnout_requests_queued_total',
    type: 'counter',
    help: 'Requests that were queued, by limit: concurrency, rate.',
    labels: ['reason'],
    read: ({ admission }) => each('reason', Object.entries(admission.queued)),
  },
  {
    name: 'turnout_queue_wait_seconds',
    type: 'histogram',
    help: 'Seconds that queued requests waited, admitted or not.',
    read: ({ meters }) => buckets('turnout_queue_wait_seconds', meters.queueWait),
  },
  {
    name: 'turnout_shed_total',
    type: 'counter',
    help: 'Requests refused because of load, by reason: queue_full, queue_timeout, workers_full, heap (short of memory).',
    labels: ['reason'],
    read: ({ admission, full }) => each('reason', Object.entries({ ...admission.shed, workers_full: full.shed })),
  },
  {
    name: 'turnout_retry_buffer_bytes',
    type: 'gauge',
    help: 'Bytes of request bodies that are kept for a retry.',
    read: ({ retryBudget }) => one(retryBudget.usedBytes),
  },
];

/** Generations that other workers continue (`--resume`). */
export const resumeMetrics: readonly MetricSpec[] = [
  {
    name: 'turnout_resumes_total',
    type: 'counter',
    help: 'Generations that another worker continued, by what ended the part before: cut (the connection broke), cut_hung (the engine hung) or aborted.',
    labels: ['cause'],
    read: ({ resume }) => each('cause', resume?.resumed ?? []),
  },
  {
    name: 'turnout_unresumed_total',
    type: 'counter',
    help: 'Generations that ended early and could not be continued exactly, by reason.',
    labels: ['reason'],
    read: ({ resume }) => each('reason', resume?.unresumed ?? []),
  },
  {
    name: 'turnout_resumed_tokens_total',
    type: 'counter',
    help: 'Sampled tokens that did not have to be sampled again because their generations were continued.',
    read: ({ resume }) => (resume === null ? [] : one(resume.resumedTokens)),
  },
];
