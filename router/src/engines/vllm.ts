import { objectIn } from '../kit/json-object.ts';
import { type Asker, askJson, askText } from './ask.ts';
import { type Engine, type RankFigures, type RankLoad, count, text } from './engine.ts';
import { metricLines, rankIn } from './metric-lines.ts';
import { servedModel } from './openai.ts';

/** vLLM (0.33.0). The control paths for weights and pauses need VLLM_SERVER_DEV_MODE=1. */
export const vllm: Engine = {
  kind: 'vllm',
  async read(ask) {
    const version = await askJson(ask, '/version');
    if (version === null || !('version' in version)) return null;
    const weights = await askJson(ask, '/weight_info');
    const paused = await askJson(ask, '/is_paused');
    // The metrics have the cache's counters only if prefix caching is on.
    const metrics = await ask('/metrics').catch(() => null);
    const config = metrics === null ? null : /^vllm:cache_config_info\{(.*)\}/m.exec(metrics.text)?.[1];
    const caching = config == null ? null : /enable_prefix_caching="(\w+)"/.exec(config)?.[1];
    const ranks = metrics === null ? 0 : loadsIn(metrics.text).length;
    return {
      kind: 'vllm',
      engineVersion: text(version['version']),
      model: await servedModel(ask),
      weightVersion: text(weights?.['weight_version']),
      hasPrefixCache: caching == null ? null : caching === 'True',
      kvTokens: config == null ? null : kvTokensIn(config, ranks),
      returnsRoutedExperts: null,
      // /server_info has the number too, but only in development mode.
      dpSize: count(ranks),
      hasControlCalls: paused !== null,
    };
  },
  async readLoads(ask) {
    // GET /load counts only with --enable-server-load-tracking; the metrics always count.
    const metrics = await ask('/metrics').catch(() => null);
    const loads = loadsIn(metrics?.text ?? '');
    if (loads.length > 0) return loads;
    const load = (await askJson(ask, '/load'))?.['server_load'];
    return typeof load === 'number' ? [{ rank: 0, requests: load, waiting: 0, kvUse: null, shown: load }] : null;
  },
  async readSigns(ask) {
    const [metrics, paused, sleeping] = await Promise.all([
      askText(ask, '/metrics'),
      saysYes(ask, '/is_paused', 'is_paused'),
      saysYes(ask, '/is_sleeping', 'is_sleeping'),
      askText(ask, '/load'),
    ]);
    const figures = metrics === null ? [] : figuresIn(metrics);
    return {
      isPaused: paused === true || sleeping === true ? true : paused === 'no answer' ? null : paused,
      // Only a core whose loop runs answers this request: not one that loads weights, nor one that hangs.
      mayBePaused: paused === 'no answer' || sleeping === 'no answer',
      figures: figures.length === 0 ? null : figures,
    };
  },
  async readStart(ask) {
    const start = /^process_start_time_seconds (\S+)/m.exec((await askText(ask, '/metrics')) ?? '')?.[1];
    // A copy: a slice would keep the whole page in memory as long as the start is known.
    return start === undefined ? null : Buffer.from(start).toString();
  },
  async readWeightVersion(ask) {
    return text((await askJson(ask, '/weight_info'))?.['weight_version']);
  },
};

/**
 * The KV cache of a rank. The blocks are those of all ranks, and a token of a model with several kinds of layers takes a block of each kind:
 * newer releases (0.32) tell the tokens too.
 */
function kvTokensIn(config: string, ranks: number): number | null {
  const label = (name: string): number => Number(new RegExp(`(?:^|,)${name}="(\\d+)"`).exec(config)?.[1]);
  return (
    count(label('kv_cache_size_tokens')) ??
    count(Math.floor((label('num_gpu_blocks') * label('block_size')) / Math.max(1, ranks)))
  );
}

/** @returns null if the path does not exist (without development mode) */
async function saysYes(ask: Asker, path: string, field: string): Promise<boolean | null | 'no answer'> {
  const reply = await ask(path).catch(() => null);
  if (reply === null) return 'no answer';
  if (reply.status !== 200) return null;
  return objectIn(reply.text)?.[field] === true;
}

const RUNNING = 'vllm:num_requests_running';
const WAITING = 'vllm:num_requests_waiting';
const KV_USE = 'vllm:(?:gpu|kv)_cache_usage_perc';
/** Read and made tokens, and the KV that a prompt takes while it is read in parts: its tokens are counted at its end. */
const PROGRESS = [
  'vllm:prompt_tokens_total',
  'vllm:generation_tokens_total',
  'vllm:prefix_cache_queries_total',
  KV_USE,
];

function figuresIn(metrics: string): RankFigures[] {
  const ranks = new Map<number, { running: number; progress: string }>();
  for (const { name, labels, value } of metricLines(metrics, [RUNNING, ...PROGRESS])) {
    const rank = rankIn(labels, 'engine');
    const figures = ranks.get(rank) ?? { running: 0, progress: '' };
    if (name === RUNNING) figures.running += value;
    figures.progress += `${value} `;
    ranks.set(rank, figures);
  }
  return Array.from(ranks, ([rank, figures]) => ({ rank, ...figures }));
}

/** By the label `engine`: the number of the rank, counted over the whole fleet where nodes share one data-parallel group. */
function loadsIn(metrics: string): RankLoad[] {
  const sums = new Map<number, { requests: number; waiting: number; kvUse: number | null }>();
  for (const { name, labels, value } of metricLines(metrics, [RUNNING, WAITING, KV_USE])) {
    const rank = rankIn(labels, 'engine');
    const load = sums.get(rank) ?? { requests: 0, waiting: 0, kvUse: null };
    sums.set(rank, load);
    if (name === WAITING) load.waiting += value;
    if (name === RUNNING || name === WAITING) load.requests += value;
    else load.kvUse = value;
  }
  return Array.from(sums, ([rank, load]) => ({ rank, ...load, shown: load.requests })).toSorted(
    (a, b) => a.rank - b.rank,
  );
}
