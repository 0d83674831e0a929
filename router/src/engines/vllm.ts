import { askJson } from './ask.ts';
import { type Engine, count, text } from './engine.ts';
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
      hasControlCalls: paused !== null,
    };
  },
  async readLoad(ask) {
    // GET /load counts only with --enable-server-load-tracking; the metrics always do.
    const metrics = await ask('/metrics').catch(() => null);
    const found = metrics?.text.matchAll(/^vllm:num_requests_(?:running|waiting)(?:\{.*\})? (\S+)$/gm);
    const values = Array.from(found ?? [], ([, value]) => Number(value));
    return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0);
  },
  async readWeightVersion(ask) {
    return text((await askJson(ask, '/weight_info'))?.['weight_version']);
  },
};
