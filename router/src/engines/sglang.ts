import { type Asker, askJson } from './ask.ts';
import { type Engine, count, text } from './engine.ts';

/** Newer releases answer /model_info and /server_info; until 0.5.2 they were /get_model_info and /get_server_info. */
const either = async (ask: Asker, path: string, old: string) => (await askJson(ask, path)) ?? (await askJson(ask, old));

/** SGLang (facts of 0.5.2 to 0.5.23). */
export const sglang: Engine = {
  kind: 'sglang',
  pausedPath: '/ready',
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
    const loads = (await askJson(ask, '/v1/loads?include=core'))?.['loads'];
    if (!Array.isArray(loads)) return null;
    return (loads as Record<string, unknown>[]).map((load) => ({
      rank: count(load['dp_rank']) ?? 0,
      requests: (count(load['num_running_reqs']) ?? 0) + (count(load['num_waiting_reqs']) ?? 0),
    }));
  },
  async readWeightVersion(ask) {
    return text((await either(ask, '/model_info', '/get_model_info'))?.['weight_version']);
  },
};
