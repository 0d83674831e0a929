/** `/metrics` with the real engines' names, for routers and dashboards. */

import type { Core } from '../model/core.ts';

const CACHE_CONFIG = 'vllm:cache_config_info';

type Row = [name: string, type: 'gauge' | 'counter', help: string, value: number, labels?: string];

export function metricsText(core: Core): string {
  const rows = core.options.kind === 'vllm' ? vllmRows(core) : sglangRows(core);
  const isVllm = core.options.kind === 'vllm';
  const model = `model_name="${core.options.model}"`;
  const described = new Set<string>();
  let text = '';
  for (const [name, type, help, value, labels] of rows) {
    if (!described.has(name)) text += `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
    described.add(name);
    // Of the settings vLLM names the engine only.
    const base = [...(name === CACHE_CONFIG ? [] : [model]), ...(isVllm ? ['engine="0"'] : [])];
    text += `${name}{${[...base, ...(labels === undefined ? [] : [labels])].join(',')}} ${value}\n`;
  }
  return isVllm ? `${text}${startTime(core)}` : text;
}

/** As Python's prometheus-client writes it: without a label. */
function startTime({ startedAt }: Core): string {
  const name = 'process_start_time_seconds';
  const help = 'Start time of the process since unix epoch in seconds.';
  return `# HELP ${name} ${help}\n# TYPE ${name} gauge\n${name} ${startedAt}\n`;
}

function vllmRows(core: Core): Row[] {
  const { scheduler, finished } = core;
  const success = (reason: 'stop' | 'length' | 'abort'): Row => [
    'vllm:request_success_total',
    'counter',
    'Requests that ended.',
    finished[reason],
    `finished_reason="${reason}"`,
  ];
  return [
    ['vllm:num_requests_running', 'gauge', 'Requests in the running batch.', core.running],
    ['vllm:num_requests_waiting', 'gauge', 'Requests waiting to be scheduled.', core.waiting],
    ['vllm:kv_cache_usage_perc', 'gauge', 'Share of KV blocks in use, 0 to 1.', core.kvTokensRead / core.kvTokensTotal],
    ['vllm:prefix_cache_queries_total', 'counter', 'Prompt tokens looked up.', scheduler.promptTokens],
    ['vllm:prefix_cache_hits_total', 'counter', 'Prompt tokens found.', scheduler.cachedTokens],
    ['vllm:prompt_tokens_total', 'counter', 'Prompt tokens.', scheduler.promptTokens],
    ['vllm:generation_tokens_total', 'counter', 'Generated tokens.', scheduler.generatedTokens],
    ['vllm:num_preemptions_total', 'counter', 'Preemptions.', scheduler.preemptions],
    [CACHE_CONFIG, 'gauge', 'Settings of the KV cache.', 1, cacheConfig(core)],
    success('stop'),
    success('length'),
    success('abort'),
  ];
}

/** The labels that the router reads, as in vLLM 0.32. */
function cacheConfig({ options: { blockTokens }, kvTokensTotal }: Core): string {
  const blocks = Math.floor(kvTokensTotal / blockTokens);
  return `block_size="${blockTokens}",enable_prefix_caching="True",kv_cache_size_tokens="${blocks * blockTokens}",num_gpu_blocks="${blocks}"`;
}

function sglangRows(core: Core): Row[] {
  const { scheduler } = core;
  const hitRate = scheduler.promptTokens > 0 ? scheduler.cachedTokens / scheduler.promptTokens : 0;
  return [
    ['sglang:num_running_reqs', 'gauge', 'Running requests.', core.running],
    ['sglang:num_queue_reqs', 'gauge', 'Requests in the waiting queue.', core.waiting],
    ['sglang:num_used_tokens', 'gauge', 'KV tokens in use.', core.kvTokensRead],
    ['sglang:max_total_num_tokens', 'gauge', 'KV tokens in all.', core.kvTokensTotal],
    ['sglang:token_usage', 'gauge', 'Share of KV tokens in use, 0 to 1.', core.kvTokensRead / core.kvTokensTotal],
    ['sglang:cache_hit_rate', 'gauge', 'Prefix cache hit rate, 0 to 1.', hitRate],
    ['sglang:prompt_tokens_total', 'counter', 'Prompt tokens.', scheduler.promptTokens],
    ['sglang:cached_tokens_total', 'counter', 'Prompt tokens found in the prefix cache.', scheduler.cachedTokens],
    ['sglang:generation_tokens_total', 'counter', 'Generated tokens.', scheduler.generatedTokens],
    ['sglang:num_requests_total', 'counter', 'Requests.', core.requests],
    ['sglang:num_aborted_requests_total', 'counter', 'Aborted requests.', core.aborted],
  ];
}
