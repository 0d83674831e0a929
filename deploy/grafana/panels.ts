import { metrics } from '../../router/src/observe/metrics.ts';
import type { MetricSpec } from '../../router/src/observe/metrics/spec.ts';

/** A line or several of a panel. */
export interface Query {
  readonly expr: string;
  readonly legend: string;
  /** The metrics that it reads. */
  readonly of: readonly string[];
}

export interface Panel {
  readonly title: string;
  readonly unit: string;
  readonly queries: readonly Query[];
  readonly isStacked?: true;
}

export interface Row {
  readonly title: string;
  readonly panels: readonly Panel[];
}

const SELECTED = '{job=~"$job", instance=~"$instance"}';
const RANGE = '[$__rate_interval]';

const table = new Map(metrics.map((spec) => [spec.name, spec]));

/** Throws if the table has no such metric with such labels. */
function specOf(name: string, type: MetricSpec['type'], by: readonly string[] = []): MetricSpec {
  const spec = table.get(name);
  if (spec?.type !== type) throw new Error(`${name} is not a ${type} of the table of metrics`);
  for (const label of by) if (spec.labels?.includes(label) !== true) throw new Error(`${name} has no label ${label}`);
  return spec;
}

const grouped = (by: readonly string[]): string => (by.length === 0 ? '' : ` by (${by.join(', ')})`);
const legendOf = (by: readonly string[], otherwise: string): string =>
  by.length === 0 ? otherwise : by.map((label) => `{{${label}}}`).join(' ');

/** Per second. */
function rate(name: string, by: readonly string[] = [], legend = name): Query {
  specOf(name, 'counter', by);
  const expr = `sum${grouped(by)} (rate(${name}${SELECTED}${RANGE}))`;
  return { expr, legend: legendOf(by, legend), of: [name] };
}

function gauge(name: string, by: readonly string[] = [], legend = name): Query {
  specOf(name, 'gauge', by);
  return { expr: `sum${grouped(by)} (${name}${SELECTED})`, legend: legendOf(by, legend), of: [name] };
}

const quantiles = (name: string): Query[] =>
  [0.5, 0.95, 0.99].map((share) => {
    specOf(name, 'histogram');
    const expr = `histogram_quantile(${share}, sum by (le) (rate(${name}_bucket${SELECTED}${RANGE})))`;
    return { expr, legend: `p${share * 100}`, of: [name] };
  });

/** Of a histogram or summary. */
function mean(name: string, type: 'histogram' | 'summary', by: readonly string[]): Query {
  specOf(name, type, by);
  const part = (suffix: string): string => `sum${grouped(by)} (rate(${name}${suffix}${SELECTED}${RANGE}))`;
  return { expr: `${part('_sum')} / ${part('_count')}`, legend: legendOf(by, name), of: [name] };
}

/** Of the rates of two counters. */
function ratio(above: string, below: string, by: readonly string[], legend: string): Query {
  const [a, b] = [rate(above, by), rate(below, by)];
  return { expr: `${a.expr} / ${b.expr}`, legend, of: [above, below] };
}

const panel = (title: string, unit: string, ...queries: readonly Query[]): Panel => ({ title, unit, queries });

export const rows: readonly Row[] = [
  {
    title: 'Requests',
    panels: [
      panel('Requests', 'reqps', rate('turnout_requests_total', ['outcome'])),
      panel('Responses of engines by status', 'reqps', rate('turnout_worker_responses_total', ['status'])),
      panel('Errors of the router by code', 'reqps', rate('turnout_errors_total', ['code'])),
      panel('Request duration', 's', ...quantiles('turnout_request_duration_seconds')),
      panel(
        'In flight, queued, held',
        'short',
        gauge('turnout_requests_in_flight', [], 'in flight'),
        gauge('turnout_queue_depth', ['reason']),
        gauge('turnout_held_requests', ['reason']),
      ),
      panel('Retries and refusals because of load', 'reqps', rate('turnout_retries_total', ['failure']), {
        ...rate('turnout_shed_total', ['reason']),
        legend: 'refused: {{reason}}',
      }),
      panel(
        'Bodies',
        'Bps',
        rate('turnout_request_body_bytes_total', [], 'requests'),
        rate('turnout_response_body_bytes_total', [], 'responses'),
      ),
      panel('Time held', 's', mean('turnout_held_seconds', 'histogram', ['reason'])),
      panel('Time in the queue', 's', ...quantiles('turnout_queue_wait_seconds')),
    ],
  },
  {
    title: 'Tokens',
    panels: [
      panel('Time to first token', 's', ...quantiles('turnout_time_to_first_token_seconds')),
      panel('Gap between tokens', 's', ...quantiles('turnout_inter_token_gap_seconds')),
      panel(
        'Tokens',
        'short',
        rate('turnout_prompt_tokens_total', [], 'prompt'),
        rate('turnout_cached_tokens_total', [], 'cached'),
        rate('turnout_output_tokens_total', [], 'output'),
      ),
      panel(
        'Cached part of prompts',
        'percentunit',
        ratio('turnout_cached_tokens_total', 'turnout_cacheable_prompt_tokens_total', [], 'reported by engines'),
        ratio(
          'turnout_policy_predicted_cached_tokens_total',
          'turnout_policy_prompt_tokens_total',
          ['policy'],
          'predicted by {{policy}}',
        ),
        ratio(
          'turnout_policy_reported_cached_tokens_total',
          'turnout_policy_prompt_tokens_total',
          ['policy'],
          'reported for {{policy}}',
        ),
      ),
      panel('Decisions of policies', 'reqps', rate('turnout_policy_decisions_total', ['policy', 'reason'])),
      panel('Blocks in prefix indexes', 'short', gauge('turnout_policy_index_blocks', ['policy'])),
      panel('Session moves', 'reqps', rate('turnout_session_moves_total', ['reason'])),
      panel('Open sessions', 'short', gauge('turnout_open_sessions', [], 'sessions')),
    ],
  },
  {
    title: 'Workers',
    panels: [
      panel('Workers by whether they get requests', 'short', gauge('turnout_workers', ['eligible'])),
      panel('In flight by worker', 'short', gauge('turnout_worker_in_flight', ['worker'])),
      panel('Output tokens by worker', 'short', rate('turnout_output_tokens_total', ['worker'])),
      panel(
        'Time to first token by worker',
        's',
        mean('turnout_worker_time_to_first_token_seconds', 'summary', ['worker']),
      ),
      panel('Gap between tokens by worker', 's', mean('turnout_worker_inter_token_gap_seconds', 'summary', ['worker'])),
      panel('Response time by worker', 's', mean('turnout_worker_response_seconds', 'summary', ['worker'])),
      panel('Circuit breakers', 'short', gauge('turnout_worker_breaker_state', ['worker'])),
      panel(
        'Changes of circuit breakers',
        'short',
        rate('turnout_worker_breaker_transitions_total', ['worker', 'from', 'to']),
      ),
      panel('Failed attempts by worker', 'reqps', rate('turnout_worker_failed_attempts_total', ['worker'])),
    ],
  },
  {
    title: 'Weight swaps',
    panels: [
      panel('Engines by state', 'short', gauge('turnout_swap_engines', ['state'])),
      panel('Swaps of engines', 'ops', rate('turnout_swaps_total', ['outcome'])),
      panel('Time in swaps by stage', 'percentunit', rate('turnout_swap_stage_seconds_total', ['stage'])),
      panel('Swap of an engine', 's', ...quantiles('turnout_swap_duration_seconds')),
      panel('Requests that wait for a swap', 'short', gauge('turnout_swap_waiting_requests', [], 'waiting')),
    ],
  },
  {
    title: 'Trajectories',
    panels: [
      panel(
        'Turns',
        'ops',
        rate('turnout_trajectory_stored_total', [], 'stored'),
        rate('turnout_trajectory_dropped_total', [], 'lost'),
        rate('turnout_trajectory_evicted_total', [], 'evicted'),
      ),
      panel('Turns that are not written yet', 'short', gauge('turnout_trajectory_pending_turns', [], 'turns')),
      panel('Stored turns', 'bytes', gauge('turnout_trajectory_bytes', [], 'bytes')),
    ],
  },
  {
    title: 'Router',
    panels: [
      panel('CPU', 'percentunit', rate('process_cpu_seconds_total', [], 'cores')),
      panel(
        'Memory',
        'bytes',
        gauge('process_resident_memory_bytes', [], 'resident'),
        gauge('turnout_memory_bytes', ['kind']),
        gauge('turnout_retry_buffer_bytes', [], 'bodies kept for retries'),
        gauge('turnout_explain_bytes', [], 'last exchanges'),
      ),
      panel('Memory of prefix indexes', 'bytes', gauge('turnout_policy_index_bytes', ['policy'])),
      panel('Delay of the event loop', 's', ...quantiles('turnout_event_loop_lag_seconds')),
      panel('Delay of reads of streams', 's', gauge('turnout_stream_delay_seconds', [], 'delay')),
      panel(
        'Connections and files',
        'short',
        gauge('turnout_client_connections', [], 'connections of clients'),
        gauge('process_open_fds', [], 'open files'),
      ),
      panel('Failures of plugins', 'ops', rate('turnout_plugin_failures_total', ['plugin', 'phase'])),
      panel('Spans', 'ops', rate('turnout_trace_spans_total', ['outcome'])),
    ],
  },
];
