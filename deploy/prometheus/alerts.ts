/** An alert of Prometheus. */
export interface Alert {
  readonly alert: string;
  readonly expr: string;
  /** How long the expression must hold, as Prometheus writes durations. */
  readonly for: string;
  /** critical: rollouts stand still, or data is lost. */
  readonly severity: 'critical' | 'warning';
  readonly summary: string;
  /** What it means and what to do. */
  readonly description: string;
}

/** What keeps a training run from going on, or loses data, and is not seen from the trainer. */
export const alerts: readonly Alert[] = [
  {
    alert: 'TurnoutNoWorker',
    expr: 'turnout_workers{eligible="true"} == 0',
    for: '2m',
    severity: 'critical',
    summary: 'No {{ $labels.role }} engine of {{ $labels.instance }} gets requests',
    description:
      'All workers of the role are unhealthy, ejected, draining or missing, so every request is refused with no_available_workers. GET /workers has the reason of each worker in not_serving_because.',
  },
  {
    alert: 'TurnoutEngineHung',
    expr: 'turnout_worker_not_serving{reason="hung"} == 1',
    for: '1m',
    severity: 'critical',
    summary: 'The engine {{ $labels.worker }} hangs',
    description:
      'The engine accepts connections and makes no progress. It gets no new requests, and gets them again when it works again. Read its log and restart it.',
  },
  {
    alert: 'TurnoutEngineNotServing',
    expr: 'turnout_worker_not_serving{reason=~"unhealthy|breaker|version|ranks|paused"} == 1',
    for: '15m',
    severity: 'warning',
    summary: 'The engine {{ $labels.worker }} gets no requests ({{ $labels.reason }})',
    description:
      'unhealthy: it fails its health checks. breaker: it fails generations. version: its weights differ from those of the serving engines. ranks: its number of data-parallel ranks is not known. paused: it was paused when it joined; the log and GET /swap have the command that resumes it. GET /workers has last_check of each worker.',
  },
  {
    alert: 'TurnoutEngineStalled',
    expr: 'turnout_worker_stalled == 1',
    for: '5m',
    severity: 'warning',
    summary: 'The engine {{ $labels.worker }} sends nothing on its open streams',
    description:
      'It has open event streams and sent no byte on any of them. Read its log; it may be paused, or about to hang.',
  },
  {
    alert: 'TurnoutRequestsHeldTooLong',
    expr: 'turnout_held_oldest_seconds > 240',
    for: '1m',
    severity: 'warning',
    summary: 'A request has been held for {{ $value | humanizeDuration }} ({{ $labels.reason }})',
    description:
      'Many clients give up after 300 s. kv_cache_full: --residency-max-wait-secs is above 60 s, and the open sessions need more KV cache than the fleet has, or sessions end without the session end signal. weight_swap: a weight swap does not end. workers_full: all workers that may serve the request are at --worker-max-inflight. GET /requests?phase=held lists the requests.',
  },
  {
    alert: 'TurnoutRequestsRefused',
    expr: 'sum by (job, instance, reason) (rate(turnout_shed_total[5m])) > 0',
    for: '10m',
    severity: 'warning',
    summary: '{{ $labels.instance }} refuses requests because of load ({{ $labels.reason }})',
    description:
      'A limit is reached and its queue is full, or the router is short of memory. Add engines, lower the load, or raise the limit.',
  },
  {
    alert: 'TurnoutSwapOpenTooLong',
    expr: 'turnout_swap_open_seconds > 1800',
    for: '1m',
    severity: 'critical',
    summary: 'A weight swap of {{ $labels.instance }} has been open for {{ $value | humanizeDuration }}',
    description:
      'Engines whose weights are being replaced get no requests. GET /swap has the stage and the error of each engine; DELETE /swap undoes it.',
  },
  {
    alert: 'TurnoutEngineQuarantined',
    expr: 'turnout_swap_engines{state="quarantined"} > 0',
    for: '15m',
    severity: 'warning',
    summary: '{{ $value }} engines of {{ $labels.instance }} are in quarantine',
    description: 'They failed to load the weights of a swap and get no requests. GET /swap has their errors.',
  },
  {
    alert: 'TurnoutTrajectoriesLost',
    expr: 'sum by (job, instance) (increase(turnout_trajectory_dropped_total[10m])) > 0',
    for: '0m',
    severity: 'critical',
    summary: '{{ $labels.instance }} loses captured turns',
    description:
      'The disk is full, the store is not available, or a limit is exceeded. Read the log, and check the disk of --data-dir.',
  },
];
