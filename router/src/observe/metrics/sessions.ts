import { type MetricSpec, type Sample, counter, each, gauge, histograms, one, perUrl } from './spec.ts';

/** @param counts by value; the last one has all larger values */
function countBuckets(name: string, counts: Float64Array | undefined): Sample[] {
  if (counts === undefined) return [];
  let total = 0;
  let sum = 0;
  const samples = Array.from(counts, (count, value): Sample => {
    total += count;
    sum += count * value;
    const le = value === counts.length - 1 ? '+Inf' : String(value);
    return { metricName: `${name}_bucket`, labels: { le }, value: total };
  });
  samples.push({ metricName: `${name}_sum`, labels: {}, value: sum });
  samples.push({ metricName: `${name}_count`, labels: {}, value: total });
  return samples;
}

export const sessionMetrics: readonly MetricSpec[] = [
  gauge(
    'turnout_open_sessions',
    'Sessions with a request in the last --session-ttl-secs whose end was not signalled; at most 300,000 are counted.',
    ({ homes }) => one(homes.size),
  ),
  counter(
    'turnout_session_moves_total',
    'Session moves, by reason: requests that went to another worker than the previous request of their session.',
    ({ homes }) => each('reason', homes.movesByReason),
    ['reason'],
  ),
  histograms(
    'turnout_held_seconds',
    'Seconds that requests were held before they got a worker, for requests that were held at all, by the reason of their last hold: workers_full, weight_swap, or the reason of the policy.',
    ['reason'],
    ({ meters }) => Array.from(meters.held, ([reason, times]) => [{ reason }, times] as const),
  ),
  {
    name: 'turnout_session_snapshot_lag',
    type: 'histogram',
    help: 'Weight snapshots between the one that a session began with and the one of its worker at the end of a request, by request. A request without a session is a session of its own.',
    read: ({ swaps }) => countBuckets('turnout_session_snapshot_lag', swaps?.lags),
  },
  counter(
    'turnout_prompt_tokens_total',
    'Prompt tokens by worker, from responses with token counts (usage, meta_info).',
    perUrl(({ promptTokens }) => promptTokens),
    ['worker'],
  ),
  counter(
    'turnout_cached_tokens_total',
    'Prompt tokens that were in the KV cache of the worker, from responses that report it; no sample of a worker that reports none.',
    perUrl(({ cachedTokens }) => cachedTokens),
    ['worker'],
  ),
  counter(
    'turnout_cacheable_prompt_tokens_total',
    'Prompt tokens by worker, from responses that report how many of them were in the KV cache.',
    perUrl(({ cachedTokens, cacheablePromptTokens }) => (cachedTokens === null ? null : cacheablePromptTokens)),
    ['worker'],
  ),
  counter(
    'turnout_output_tokens_total',
    'Output tokens by worker, from responses with token counts (usage, meta_info).',
    perUrl(({ outputTokens }) => outputTokens),
    ['worker'],
  ),
];
