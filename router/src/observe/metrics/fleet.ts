import type { Fleet } from '../../fleet/fleet.ts';
import { REASONS, type Role, type Worker } from '../../fleet/worker.ts';
import type { Discovery } from '../../fleet/discover/kubernetes.ts';
import type { Timing } from '../durations.ts';
import type { Meters, WorkerMeters } from '../meters.ts';
import { type MetricSpec, type Sample, counter, gauge, one, perUrl, perWorker, summaries } from './spec.ts';

const timing = (name: string, help: string, read: (of: WorkerMeters) => Timing): MetricSpec =>
  summaries(name, help, ['worker'], ({ meters }) =>
    Array.from(meters.byWorker, ([worker, of]) => [{ worker }, read(of)] as const),
  );

export const health = perWorker((_, { isHealthy }) => Number(isHealthy));
export const breakerState = perWorker(
  ({ breakers }, worker) => ({ closed: 0, open: 1, half_open: 2 })[breakers.stateOf(worker)],
);
export const inFlight = perWorker(({ fleet }, worker) => fleet.load(worker));

const discovered = (discovery: Discovery | null, read: (discovery: Discovery) => number): Sample[] =>
  discovery === null ? [] : one(read(discovery));

export const breakerTransitions = ({ meters }: { readonly meters: Meters }): Sample[] =>
  [...meters.byWorker].flatMap(([worker, { breakerChanges }]) =>
    Array.from(breakerChanges, ([change, value]) => {
      const [from = '', to = ''] = change.split(' ');
      return { labels: { worker, from, to }, value };
    }),
  );

/** A worker whose role no request needs gets none, and that is no fault: it is counted only where it is. */
function workersByRole({ workers, eligible, servesPairs }: Fleet): Sample[] {
  const needed = new Set<Role>(servesPairs ? ['prefill', 'decode'] : ['regular']);
  return Array.from(new Set([...needed, ...workers.map(({ role }) => role)])).flatMap((role) => {
    const count = (list: readonly Worker[]): number => list.filter((worker) => worker.role === role).length;
    const counted: Sample = { labels: { eligible: 'false', role }, value: count(workers) - count(eligible) };
    return needed.has(role) ? [{ labels: { eligible: 'true', role }, value: count(eligible) }, counted] : [counted];
  });
}

export const fleetMetrics: readonly MetricSpec[] = [
  gauge(
    'turnout_workers',
    'Registered workers, by role and by whether they get new requests. Roles that requests need are there without workers too; others have only eligible=false.',
    ({ fleet }) => workersByRole(fleet),
    ['eligible', 'role'],
  ),
  gauge(
    'turnout_discovery_connected',
    '1 while service discovery (--service-discovery, --pool-name) is connected to the API server; 0: the last known workers stay.',
    ({ found }) => discovered(found.discovery, ({ isConnected }) => Number(isConnected)),
  ),
  gauge('turnout_discovered_workers', 'Registered workers that --service-discovery found.', ({ found }) =>
    discovered(found.discovery, ({ workerCount }) => workerCount),
  ),
  gauge('turnout_worker_in_flight', 'Requests in flight at a worker.', inFlight, ['worker']),
  gauge('turnout_worker_healthy', '1 for a worker that passed its last health checks.', health, ['worker']),
  gauge(
    'turnout_worker_not_serving',
    `1 for each reason for which a worker gets no new requests: ${Object.keys(REASONS).join(', ')}.`,
    ({ fleet }) =>
      fleet.workers.flatMap((w) => w.reasonNames().map((reason) => ({ labels: { worker: w.url, reason }, value: 1 }))),
    ['worker', 'reason'],
  ),
  gauge('turnout_worker_breaker_state', "A worker's circuit breaker: 0 closed, 1 open, 2 half-open.", breakerState, [
    'worker',
  ]),
  counter(
    'turnout_breaker_panics_total',
    'Times that a failing worker was not ejected, because too many others were (--max-ejected-percent).',
    ({ breakers }) => one(breakers.panics),
  ),
  gauge(
    'turnout_worker_stalled',
    '1 for a worker that has open event streams and sent nothing on any of them for 30 s.',
    perWorker(({ stalls }, worker) => Number(stalls.isStalled(worker))),
    ['worker'],
  ),
  gauge(
    'turnout_worker_connections',
    'Open connections to a worker, idle ones included.',
    perWorker((_, { pool }) => pool.openCount),
    ['worker'],
  ),
  counter(
    'turnout_worker_responses_total',
    'Responses of a worker, by the first digit of their status.',
    ({ meters }) =>
      [...meters.byWorker].flatMap(([worker, { byStatusClass }]) =>
        Array.from(byStatusClass, (value, digit) => ({ labels: { worker, status: `${digit}xx` }, value })).filter(
          ({ value }) => value > 0,
        ),
      ),
    ['worker', 'status'],
  ),
  counter(
    'turnout_worker_failed_attempts_total',
    'Attempts at a worker that failed before a response. Closed idle connections, and generations that were aborted by request, do not count.',
    perUrl(({ failedAttempts }) => failedAttempts),
    ['worker'],
  ),
  counter(
    'turnout_worker_cut_answers_total',
    'Responses of a worker that broke off after their first byte, also those that another worker continued (--resume).',
    perUrl(({ cut }) => cut),
    ['worker'],
  ),
  timing(
    'turnout_worker_time_to_first_token_seconds',
    'Seconds from sending a request to a worker to the first byte of the body of its event stream, for generations.',
    ({ firstToken }) => firstToken,
  ),
  timing(
    'turnout_worker_inter_token_gap_seconds',
    'Mean seconds between two output tokens of an event stream of a worker, one observation a stream.',
    ({ tokenGap }) => tokenGap,
  ),
  timing(
    'turnout_worker_response_seconds',
    'Seconds from sending a request to a worker to the end of its response, for complete generations.',
    ({ response }) => response,
  ),
  counter(
    'turnout_worker_breaker_transitions_total',
    "State changes of a worker's circuit breaker (closed, open, half_open).",
    breakerTransitions,
    ['worker', 'from', 'to'],
  ),
];
