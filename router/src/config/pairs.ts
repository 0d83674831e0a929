import { type NamedWorker, namedWorkers } from './named-workers.ts';
import type { Config } from './options.ts';

/** Whose engines make pairs, and for vLLM the connector of the KV transfer. */
export type PairKind = 'sglang' | 'nixl' | 'mooncake';

/** null: engines serve whole requests. */
export function pairKind({
  pdDisaggregation,
  vllmPdDisaggregation,
  kvConnector,
}: Pick<Config, 'pdDisaggregation' | 'vllmPdDisaggregation' | 'kvConnector'>): PairKind | null {
  if (vllmPdDisaggregation) return kvConnector;
  return pdDisaggregation ? 'sglang' : null;
}

type PairConfig = Pick<
  Config,
  | 'workerUrls'
  | 'prefill'
  | 'decode'
  | 'pdDisaggregation'
  | 'vllmPdDisaggregation'
  | 'kvConnector'
  | 'pdMinPromptTokens'
  | 'prefillPolicy'
  | 'decodePolicy'
>;

/** @returns what is wrong with the options for pairs; null: nothing */
export function pairsProblem(config: PairConfig): string | null {
  const kind = pairKind(config);
  if (config.pdDisaggregation && config.vllmPdDisaggregation)
    return '--pd-disaggregation is for SGLang engines and --vllm-pd-disaggregation for vLLM engines: give one of them';
  if (config.pdMinPromptTokens > 0 && (kind === null || kind === 'sglang'))
    return '--pd-min-prompt-tokens needs --vllm-pd-disaggregation: a decode engine of SGLang’s dies of a request without its prefill engine';
  if (config.kvConnector !== 'nixl' && !config.vllmPdDisaggregation)
    return `--kv-connector ${config.kvConnector} needs --vllm-pd-disaggregation`;
  if (kind === null) return strayOption(config);
  if (config.workerUrls.length > 0) {
    const on = kind === 'sglang' ? '--pd-disaggregation' : '--vllm-pd-disaggregation';
    return `--worker-urls names engines that serve whole requests: with ${on} give --prefill and --decode`;
  }
  let workers: readonly NamedWorker[];
  try {
    workers = namedWorkers(config);
  } catch (error) {
    return `--prefill: ${(error as Error).message}`;
  }
  const urls = workers.map(({ url }) => url.replace(/\/+$/, ''));
  const twice = urls.findIndex((url, i) => urls.indexOf(url) !== i);
  return twice < 0
    ? null
    : `${workers[twice]!.flag}: ${urls[twice]!.replace(/^.*@/, '')} is named twice: an engine has one place in the fleet`;
}

/** An option that is only for pairs, in a fleet without pairs; null: there is none. */
function strayOption({ prefill, decode, prefillPolicy, decodePolicy }: PairConfig): string | null {
  const needed = 'needs --pd-disaggregation (SGLang) or --vllm-pd-disaggregation';
  if (prefill.length > 0) return `--prefill ${needed}`;
  if (decode.length > 0) return `--decode ${needed}`;
  if (prefillPolicy !== undefined) return `--prefill-policy ${needed}`;
  return decodePolicy === undefined ? null : `--decode-policy ${needed}`;
}
