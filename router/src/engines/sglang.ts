import { isObject, objectIn } from '../kit/json-object.ts';
import { type Asker, askJson, askText } from './ask.ts';
import { type Engine, type RankFigures, count, text } from './engine.ts';
import { metricLines, rankIn } from './metric-lines.ts';

/** /model_info and /server_info were /get_model_info and /get_server_info until 0.5.2. */
const either = async (ask: Asker, path: string, old: string) => (await askJson(ask, path)) ?? (await askJson(ask, old));

/** SGLang (0.5.2 to 0.5.23). */
export const sglang: Engine = {
  kind: 'sglang',
  async read(ask) {
    const model = await either(ask, '/model_info', '/get_model_info');
    if (model === null || !('model_path' in model)) return null;
    const server = await either(ask, '/server_info', '/get_server_info');
    return {
      kind: 'sglang',
      engineVersion: text(server?.['version']),
      model: text(model['served_model_name']) ?? text(server?.['served_model_name']) ?? text(model['model_path']),
      weightVersion: text(model['weight_version']),
      hasPrefixCache: server === null ? null : server['disable_radix_cache'] !== true,
      kvTokens: count(server?.['max_total_num_tokens']),
      returnsRoutedExperts: server === null ? null : server['enable_return_routed_experts'] === true,
      dpSize: count(server?.['dp_size']),
      hasControlCalls: true,
    };
  },
  async readLoads(ask) {
    const loads = (await askJson(ask, '/v1/loads?include=core'))?.['loads'] ?? (await oldLoads(ask));
    if (!Array.isArray(loads) || !loads.every(isObject)) return null;
    return (loads as Load[]).map((load) => ({
      rank: load.dp_rank ?? 0,
      requests: (load.num_running_reqs ?? load.num_reqs ?? 0) + (load.num_waiting_reqs ?? 0),
      waiting: load.num_waiting_reqs ?? 0,
      kvUse: load.token_usage ?? null,
      shown: load.num_total_tokens ?? load.num_tokens ?? 0,
    }));
  },
  async readSigns(ask) {
    const [answer, metrics, ready] = await Promise.all([
      askJson(ask, '/v1/loads?include=core,queues'),
      askText(ask, '/metrics'),
      ask('/ready').catch(() => null),
    ]);
    const loads = loadsIn(answer?.['loads']);
    return {
      isPaused: loads.some(({ queues }) => (count(queues?.paused) ?? 0) > 0) ? true : null,
      mayBePaused: ready?.status === 200 ? false : ready?.status === 503 || (await answersFromLoop(ask)),
      figures: figuresOf(loads, metrics ?? ''),
    };
  },
  /** How long its start took (0.5.23), to the nanosecond. Older releases report nothing that is another one after a restart for sure. */
  async readStart(ask) {
    const took = (await askJson(ask, '/server_info'))?.['startup_time'];
    return isObject(took) ? text(count(took['scheduler_e2e'])) : null;
  },
  async readWeightVersion(ask) {
    return text((await either(ask, '/model_info', '/get_model_info'))?.['weight_version']);
  },
};

/**
 * The name of its model since its start; null: not reported. Weights from disk change the one in /v1/models and /model_info to their path
 * (0.5.23), but requests name what the engine was started with, and engines with other weights are asked for the same model.
 * Rejects if the engine does not answer: its scheduler has to, at the end of a step.
 */
export async function sglangModelName(ask: Asker): Promise<string | null> {
  const reply = await ask('/server_info');
  const { text: said } = reply.status === 404 ? await ask('/get_server_info') : reply;
  return text(objectIn(said)?.['served_model_name']) || null;
}

/** Until 0.5.5; a list, where /v1/loads has an object. */
async function oldLoads(ask: Asker): Promise<unknown> {
  try {
    return JSON.parse((await askText(ask, '/get_load')) ?? 'null') as unknown;
  } catch {
    return null;
  }
}

/** An entry of /v1/loads, or of the older /get_load, for one rank. */
interface Load {
  readonly dp_rank?: number;
  readonly num_running_reqs?: number;
  readonly num_reqs?: number;
  readonly num_waiting_reqs?: number;
  readonly num_used_tokens?: number;
  readonly num_total_tokens?: number;
  readonly num_tokens?: number;
  readonly token_usage?: number;
  readonly queues?: { readonly paused?: number };
}

const loadsIn = (list: unknown): Load[] => (Array.isArray(list) ? (list.filter(isObject) as Load[]) : []);

/**
 * For releases without /ready: the event loop of a paused scheduler answers this request, that of a hanging one does
 * not. Since 0.5.23 /ready returns 503 as soon as the engine is paused; if the engine hangs, only once a check of
 * /health has failed, after 20 s.
 */
async function answersFromLoop(ask: Asker): Promise<boolean> {
  return (await either(ask, '/server_info', '/get_server_info')) !== null;
}

/** Counters of finished requests too: an additional figure cannot hide progress. */
const TOKENS = [
  'sglang:prompt_tokens_total',
  'sglang:generation_tokens_total',
  'sglang:realtime_tokens_total',
  'sglang:num_used_tokens',
];
const RUNNING = 'sglang:num_running_reqs';

/** /v1/loads is up to date; the metrics (`--enable-metrics`) are updated every few seconds. */
function figuresOf(loads: readonly Load[], metrics: string): RankFigures[] | null {
  const lines = metricLines(metrics, [RUNNING, ...TOKENS]).map((line) => ({
    ...line,
    rank: rankIn(line.labels, 'dp_rank'),
  }));
  const progressOf = (rank: number): string =>
    lines
      .filter((line) => line.rank === rank)
      .map(({ value }) => value)
      .join(' ');
  const figures = loads.map(({ dp_rank: rank = 0, num_running_reqs: running = 0, num_used_tokens: used = 0 }) => ({
    rank,
    running,
    progress: `${running} ${used} ${progressOf(rank)}`,
  }));
  if (figures.length > 0) return figures;
  // With tensor parallelism every rank has its own line.
  const ranks = new Set(lines.filter(({ name }) => name === RUNNING).map(({ rank }) => rank));
  if (ranks.size === 0) return null;
  return Array.from(ranks, (rank) => {
    const running = lines.filter((line) => line.name === RUNNING && line.rank === rank).map(({ value }) => value);
    return { rank, running: Math.max(...running), progress: progressOf(rank) };
  });
}
