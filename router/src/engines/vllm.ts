import { askJson } from './ask.ts';
import { type Engine, type RankLoad, count, text } from './engine.ts';
import { servedModel } from './openai.ts';

/** vLLM (facts of 0.32.0). What steers weights and pauses is there only with VLLM_SERVER_DEV_MODE=1. */
export const vllm: Engine = {
  kind: 'vllm',
  pausedPath: null,
  async read(ask) {
    const version = await askJson(ask, '/version');
    if (version === null || !('version' in version)) return null;
    const weights = await askJson(ask, '/weight_info');
    const paused = await askJson(ask, '/is_paused');
    // The metrics name the cache's counters only when prefix caching can count something.
    const metrics = await ask('/metrics').catch(() => null);
    const config = metrics === null ? null : /^vllm:cache_config_info\{(.*)\}/m.exec(metrics.text)?.[1];
    const caching = config == null ? null : /enable_prefix_caching="(\w+)"/.exec(config)?.[1];
    const blocks = config == null ? null : /num_gpu_blocks="(\d+)"/.exec(config)?.[1];
    const blockSize = config == null ? null : /\bblock_size="(\d+)"/.exec(config)?.[1];
    return {
      kind: 'vllm',
      engineVersion: text(version['version']),
      model: await servedModel(ask),
      weightVersion: text(weights?.['weight_version']),
      hasPrefixCache: caching == null ? null : caching === 'True',
      kvTokens: count(Number(blocks) * Number(blockSize)),
      returnsRoutedExperts: null,
      // /server_info would say it too, but only in development mode.
      dpSize: metrics === null ? null : count(loadsIn(metrics.text).length),
      hasControlCalls: paused !== null,
    };
  },
  async readLoads(ask) {
    // GET /load counts only with --enable-server-load-tracking; the metrics always do.
    const metrics = await ask('/metrics').catch(() => null);
    const loads = loadsIn(metrics?.text ?? '');
    return loads.length === 0 ? null : loads;
  },
  async readWeightVersion(ask) {
    return text((await askJson(ask, '/weight_info'))?.['weight_version']);
  },
};

/** By the label `engine`: the number of the rank, counted over the whole fleet where nodes share one data-parallel group. */
function loadsIn(metrics: string): RankLoad[] {
  const requests = new Map<number, number>();
  for (const [, labels = '', value] of metrics.matchAll(
    /^vllm:num_requests_(?:running|waiting)(?:\{(.*)\})? (\S+)$/gm,
  )) {
    const rank = Number(/(?:^|,)engine="(\d+)"/.exec(labels)?.[1] ?? 0);
    requests.set(rank, (requests.get(rank) ?? 0) + Number(value));
  }
  return Array.from(requests, ([rank, sum]) => ({ rank, requests: sum })).toSorted((a, b) => a.rank - b.rank);
}
