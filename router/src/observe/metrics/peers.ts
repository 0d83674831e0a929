import type { Role } from '../../fleet/worker.ts';
import { type RouteMeters, pairIn } from '../peer-meters.ts';
import { breakerState, breakerTransitions, health, inFlight } from './fleet.ts';
import {
  type MetricSources,
  type MetricSpec,
  type Sample,
  counter,
  gauge,
  histogram,
  histograms,
  one,
  perUrl,
  perWorker,
  summaries,
} from './spec.ts';

/** Whose metric names are served beside the router's own (`--metrics-compat`). */
export type MetricsPeer = 'sglang' | 'vllm';

const routes =
  <T = Sample>(read: (route: string, of: RouteMeters) => readonly T[]) =>
  ({ peers }: MetricSources): T[] =>
    [...(peers?.routes ?? [])].flatMap(([route, of]) => read(route, of));

/** @param names the labels of the two parts of a key */
const pairs = (
  counts: ReadonlyMap<string, number> | undefined,
  names: readonly [string, string],
  more = {},
): Sample[] =>
  Array.from(counts ?? [], ([key, value]) => {
    const [one, other] = pairIn(key);
    return { labels: { ...more, [names[0]]: one, [names[1]]: other }, value };
  });

const outcomes = ({ peers }: MetricSources): Sample[] => pairs(peers?.outcomes, ['worker', 'outcome']);

const halves = (counts: ReadonlyMap<string, number> | undefined, role: Role): Sample[] =>
  pairs(counts, ['role', 'worker'])
    .filter(({ labels }) => labels['role'] === role)
    .map(({ labels, value }) => ({ labels: { worker: labels['worker']! }, value }));

const positive = (samples: readonly Sample[]): readonly Sample[] => samples.filter(({ value }) => value > 0);
/** Of vllm-router 0.1.17, as it serves them. */
const vllm: readonly MetricSpec[] = [
  counter(
    'vllm_router_requests_total',
    'Requests by route.',
    routes((route, { duration }) => [{ labels: { route }, value: duration.count }]),
    ['route'],
  ),
  counter(
    'vllm_router_request_errors_total',
    'Error responses by route; error_type is the code of the error.',
    routes((route, { errors }) =>
      Array.from(errors, ([error, value]) => ({ labels: { route, error_type: error }, value })),
    ),
    ['route', 'error_type'],
  ),
  counter(
    'vllm_router_retries_total',
    'Retries by route.',
    routes((route, { retries }) => positive([{ labels: { route }, value: retries }])),
    ['route'],
  ),
  counter(
    'vllm_router_retries_exhausted_total',
    'Requests that failed after retries.',
    routes((route, { exhausted }) => positive([{ labels: { route }, value: exhausted }])),
    ['route'],
  ),
  histogram(
    'vllm_router_generate_duration_seconds',
    'Seconds from the request head to the end of the response.',
    ({ meters }) => meters.duration,
  ),
  histograms(
    'vllm_router_request_duration_seconds',
    'Seconds from the request head to the end of the response, by route.',
    ['route'],
    routes((route, { duration }) => [[{ route }, duration] as const]),
  ),
  counter(
    'vllm_router_policy_decisions_total',
    'Choices by policy and worker.',
    ({ peers }) => pairs(peers?.decisions, ['policy', 'worker']),
    ['policy', 'worker'],
  ),
  counter(
    'vllm_router_processed_requests_total',
    'Responses by worker.',
    perUrl(({ byStatusClass }) => byStatusClass.reduce((sum, count) => sum + count, 0)),
    ['worker'],
  ),
  counter('vllm_router_cb_outcomes_total', 'Outcomes that count for the circuit breaker of a worker.', outcomes, [
    'worker',
    'outcome',
  ]),
  counter(
    'vllm_router_cb_state_transitions_total',
    'State changes of the circuit breaker of a worker.',
    breakerTransitions,
    ['worker', 'from', 'to'],
  ),
  gauge('vllm_router_cb_state', 'Circuit breaker of a worker: 0 closed, 1 open, 2 half-open.', breakerState, [
    'worker',
  ]),
  gauge('vllm_router_worker_health', '1 for a worker that passed its last health checks.', health, ['worker']),
  gauge('vllm_router_active_workers', 'Registered workers.', ({ fleet }) => one(fleet.workers.length)),
  gauge('vllm_router_running_requests', 'Requests in flight at a worker.', inFlight, ['worker']),
];

const pairNames: readonly MetricSpec[] = [
  counter(
    'vllm_router_pd_requests_total',
    'Requests that pairs of a prefill and a decode engine responded to, by route.',
    routes((route, { pairDuration }) => positive([{ labels: { route }, value: pairDuration.count }])),
    ['route'],
  ),
  histograms(
    'vllm_router_pd_request_duration_seconds',
    'Seconds from the request head to the end of the response, for pairs, by route.',
    ['route'],
    routes((route, { pairDuration }) => (pairDuration.count === 0 ? [] : [[{ route }, pairDuration] as const])),
  ),
  ...(['prefill', 'decode'] as const).flatMap((role) => [
    counter(
      `vllm_router_pd_${role}_requests_total`,
      `Requests that a ${role} engine served.`,
      ({ peers }) => halves(peers?.halves, role),
      ['worker'],
    ),
    counter(
      `vllm_router_pd_${role}_errors_total`,
      `Attempts that failed at a ${role} engine.`,
      ({ peers }) => halves(peers?.failedHalves, role),
      ['worker'],
    ),
  ]),
];

const regular = { worker_type: 'regular', connection_mode: 'http' };
const http = { router_type: 'http', backend_type: 'regular', connection_mode: 'http' };

/** `/v1/chat/completions` is `chat`, every other path its last part. */
const endpointOf = (route: string): string =>
  route.includes('/chat/') ? 'chat' : route.slice(route.lastIndexOf('/') + 1);

/** Several paths have one endpoint: their samples with the same labels are added up. */
const addedUp = (spec: MetricSpec): MetricSpec => ({
  ...spec,
  read(sources) {
    const sums = new Map<string, Sample>();
    for (const sample of spec.read(sources)) {
      const key = JSON.stringify([sample.metricName, sample.labels]);
      sums.set(key, { ...sample, value: sample.value + (sums.get(key)?.value ?? 0) });
    }
    return [...sums.values()];
  },
});

/** Of sglang-router 0.3.2, as it serves them. */
const sglang: readonly MetricSpec[] = [
  counter(
    'smg_http_requests_total',
    'Requests by method and path.',
    routes((path, { duration }) => [{ labels: { method: methodOf(path), path }, value: duration.count }]),
    ['method', 'path'],
  ),
  counter(
    'smg_http_responses_total',
    'Responses by status and error code.',
    ({ peers }) => pairs(peers?.responses, ['status_code', 'error_code']),
    ['status_code', 'error_code'],
  ),
  gauge('smg_http_connections_active', 'Open client connections.', ({ ports }) => one(ports.data.connections.size)),
  histograms(
    'smg_http_request_duration_seconds',
    'Seconds from the request head to the end of the response, by path.',
    ['method', 'path'],
    routes((path, { duration }) => [[{ method: methodOf(path), path }, duration] as const]),
  ),
  addedUp(
    counter(
      'smg_router_requests_total',
      'Requests that engines responded to, by model, endpoint and whether the response was a stream.',
      routes((route, { answered }) =>
        pairs(answered, ['model', 'streaming'], { ...http, endpoint: endpointOf(route) }),
      ),
      ['router_type', 'backend_type', 'connection_mode', 'endpoint', 'model', 'streaming'],
    ),
  ),
  addedUp(
    histograms(
      'smg_router_request_duration_seconds',
      'Seconds from the request head to the end of the response, by endpoint.',
      ['router_type', 'backend_type', 'connection_mode', 'endpoint'],
      routes((route, { duration }) =>
        route === 'other' ? [] : [[{ ...http, endpoint: endpointOf(route) }, duration] as const],
      ),
    ),
  ),
  counter(
    'smg_router_upstream_responses_total',
    "Engines' responses by status and error code.",
    ({ peers }) => pairs(peers?.upstream, ['status_code', 'error_code'], { router_type: 'http' }),
    ['router_type', 'status_code', 'error_code'],
  ),
  counter(
    'smg_worker_selection_total',
    'Choices by policy and model.',
    ({ peers }) => pairs(peers?.selections, ['policy', 'model'], regular),
    ['worker_type', 'connection_mode', 'policy', 'model'],
  ),
  gauge(
    'smg_worker_pool_size',
    'Registered workers.',
    ({ fleet }) => [{ labels: regular, value: fleet.workers.length }],
    ['worker_type', 'connection_mode'],
  ),
  gauge('smg_worker_health', '1 for a worker that passed its last health checks.', health, ['worker']),
  gauge('smg_worker_requests_active', 'Requests in flight at a worker.', inFlight, ['worker']),
  gauge('smg_worker_cb_state', 'Circuit breaker of a worker: 0 closed, 1 open, 2 half-open.', breakerState, ['worker']),
  counter('smg_worker_cb_outcomes_total', 'Outcomes that count for the circuit breaker of a worker.', outcomes, [
    'worker',
    'outcome',
  ]),
  gauge(
    'smg_worker_cb_consecutive_failures',
    'Failed responses of a worker in a row.',
    perWorker(({ peers }, { url }) => Math.max(0, -(peers?.inRow.get(url) ?? 0))),
    ['worker'],
  ),
  gauge(
    'smg_worker_cb_consecutive_successes',
    'Successful responses of a worker in a row.',
    perWorker(({ peers }, { url }) => Math.max(0, peers?.inRow.get(url) ?? 0)),
    ['worker'],
  ),
  addedUp(
    counter(
      'smg_worker_retries_total',
      'Retries by endpoint.',
      routes((route, { retries }) =>
        positive([{ labels: { worker_type: 'regular', endpoint: endpointOf(route) }, value: retries }]),
      ),
      ['worker_type', 'endpoint'],
    ),
  ),
  addedUp(
    counter(
      'smg_worker_retries_exhausted_total',
      'Requests that failed after retries, by endpoint.',
      routes((route, { exhausted }) =>
        positive([{ labels: { worker_type: 'regular', endpoint: endpointOf(route) }, value: exhausted }]),
      ),
      ['worker_type', 'endpoint'],
    ),
  ),
  summaries(
    'smg_worker_retry_backoff_seconds',
    'Time waited before retries, by the number of the retry.',
    ['attempt'],
    ({ peers }) => Array.from(peers?.waits ?? [], ([attempt, of]) => [{ attempt }, of] as const),
  ),
  counter(
    'smg_http_rate_limit_total',
    'Requests by the decision of the limits.',
    ({ meters, admission }) => {
      const rejected = Object.values(admission.shed).reduce((sum, count) => sum + count, 0);
      const all = Object.values(meters.outcomes).reduce((sum, count) => sum + count, 0);
      return [
        { labels: { result: 'allowed' }, value: Math.max(0, all - rejected) },
        { labels: { result: 'rejected' }, value: rejected },
      ];
    },
    ['result'],
  ),
];

/** Clients send generation requests with POST; other paths have one label. */
const methodOf = (path: string): string => (path === 'other' ? 'other' : 'POST');

export const peerMetrics: Readonly<Record<MetricsPeer, readonly MetricSpec[]>> = {
  sglang,
  vllm: [...vllm, ...pairNames],
};
