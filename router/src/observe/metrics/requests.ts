import { type MetricSpec, counter, each, gauge, histogram, one } from './spec.ts';

export const requestMetrics: readonly MetricSpec[] = [
  counter(
    'turnout_requests_total',
    'Finished requests, by outcome: complete (any status), refused by the router, cut (truncated), client_left.',
    ({ meters }) => each('outcome', Object.entries(meters.outcomes)),
    ['outcome'],
  ),
  gauge('turnout_requests_in_flight', 'Requests in flight, queued and held ones included.', ({ inFlight }) =>
    one(inFlight.size),
  ),
  histogram(
    'turnout_request_duration_seconds',
    'Seconds from the request head to the end of the response.',
    ({ meters }) => meters.duration,
  ),
  histogram(
    'turnout_time_to_first_byte_seconds',
    'Seconds from the request head to the first byte of the response.',
    ({ meters }) => meters.firstByte,
  ),
  histogram(
    'turnout_time_to_first_token_seconds',
    'Seconds from the request head to the first byte of the body of an event stream, for generations; queues, holds and failed attempts included.',
    ({ meters }) => meters.firstToken,
  ),
  histogram(
    'turnout_inter_token_gap_seconds',
    'Mean seconds between two output tokens of an event stream, one observation a stream. A stream without token counts counts its reads as tokens.',
    ({ meters }) => meters.tokenGap,
  ),
  counter('turnout_request_body_bytes_total', 'Bytes of request bodies of finished requests.', ({ meters }) =>
    one(meters.requestBytes),
  ),
  counter(
    'turnout_response_body_bytes_total',
    "Bytes of engines' response bodies of finished requests, with the framing of chunked ones.",
    ({ meters }) => one(meters.responseBytes),
  ),
  counter(
    'turnout_errors_total',
    'Errors of the router itself, by code (the value of x-turnout-error).',
    ({ meters }) => each('code', meters.errors),
    ['code'],
  ),
  counter(
    'turnout_plugin_failures_total',
    'Plugin failures, by plugin and phase: an exception, an invalid result, or --plugin-timeout-ms exceeded.',
    ({ meters }) =>
      [...meters.pluginFailures].flatMap(([plugin, phases]) =>
        Array.from(phases, ([phase, value]) => ({ labels: { plugin, phase }, value })),
      ),
    ['plugin', 'phase'],
  ),
  counter(
    'turnout_refused_heads_total',
    'Requests refused by their head: malformed, too large, or with a Content-Length beyond --max-payload-size. turnout_errors_total counts them too, turnout_requests_total does not.',
    ({ meters }) => one(meters.refusedHeads),
  ),
  counter(
    'turnout_retries_total',
    'Retries, by how the attempt before failed (connect, stale, reset, status, hung; with --resume also cut, cut_hung, aborted).',
    ({ meters }) => each('failure', meters.retries),
    ['failure'],
  ),
  counter(
    'turnout_upstream_truncated_total',
    'Responses that engines truncated after their first byte.',
    ({ meters }) => one(meters.ofAll().cut),
  ),
  gauge(
    'turnout_held_requests',
    'Admitted requests that wait for a worker, by reason: workers_full, or the reason of the policy.',
    // A sample always: an autoscaler takes a metric without one for a failure, and does not scale down (kubernetes/kubernetes#99514).
    ({ holdQueue }) => each('reason', new Map([['workers_full', 0], ...holdQueue.counts()])),
    ['reason'],
  ),
  gauge(
    'turnout_held_oldest_seconds',
    'Seconds for which the oldest of the held requests has been held, by reason as for turnout_held_requests.',
    ({ holdQueue }) =>
      each(
        'reason',
        Array.from(holdQueue.oldestMs(), ([reason, ms]) => [reason, (performance.now() - ms) / 1000] as const),
      ),
    ['reason'],
  ),
  gauge(
    'turnout_queue_depth',
    'Requests that wait in the queue, by limit: concurrency, rate.',
    ({ admission }) => each('reason', Object.entries(admission.waiting)),
    ['reason'],
  ),
  counter(
    'turnout_requests_queued_total',
    'Requests that were queued, by limit: concurrency, rate.',
    ({ admission }) => each('reason', Object.entries(admission.queued)),
    ['reason'],
  ),
  histogram(
    'turnout_queue_wait_seconds',
    'Seconds that queued requests waited, admitted or not.',
    ({ meters }) => meters.queueWait,
  ),
  counter(
    'turnout_shed_total',
    'Requests refused because of load, by reason: queue_full, queue_timeout, objective (negative priority in --objectives), workers_full, heap (short of memory).',
    ({ admission, full }) => each('reason', Object.entries({ ...admission.shed, workers_full: full.shed })),
    ['reason'],
  ),
  gauge('turnout_retry_buffer_bytes', 'Bytes of request bodies that are kept for a retry.', ({ retryBudget }) =>
    one(retryBudget.usedBytes),
  ),
];

/** Generations that other workers continue (`--resume`). */
export const resumeMetrics: readonly MetricSpec[] = [
  counter(
    'turnout_resumes_total',
    'Generations that another worker continued, by what ended the part before: cut (the connection broke), cut_hung (the engine hung) or aborted.',
    ({ resume }) => each('cause', resume?.resumed ?? []),
    ['cause'],
  ),
  counter(
    'turnout_unresumed_total',
    'Generations that ended early and could not be continued exactly, by reason.',
    ({ resume }) => each('reason', resume?.unresumed ?? []),
    ['reason'],
  ),
  counter(
    'turnout_resumed_tokens_total',
    'Sampled tokens that did not have to be sampled again because their generations were continued.',
    ({ resume }) => (resume === null ? [] : one(resume.resumedTokens)),
  ),
];
