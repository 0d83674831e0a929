import type { Config } from '../../config/options.ts';
import type { EngineFacts } from '../../engines/engine.ts';
import { type Finding, note } from './finding.ts';

const NAME = 'rollout-fields';

/** What the fields of rollout inference need of the engine and of the options of their plugin. */
export function checkRolloutFields({ kind, returnsRoutedExperts }: EngineFacts, config: Config): Finding[] {
  const entry = config.plugin.find((each) => each === NAME || each.startsWith(`${NAME}:`));
  const isLoaded = entry !== undefined || config.swapSnapshots !== undefined || config.deployments.length > 0;
  if (!isLoaded || kind === 'openai') return [];
  const start =
    kind === 'vllm' ? '--logprobs-mode processed_logprobs' : 'its default, without SGLANG_RETURN_ORIGINAL_LOGPROB';
  return [
    ...(entry?.includes('"logprobs"') === true
      ? []
      : [
          note(
            `${NAME}: sampling_logprob, which extract_fireworks_response of fireworks-ai reads, is null except at temperature 1, top_p 1, top_k 0: start the engine with ${start}, and the router with --plugin '${NAME}:{"logprobs":"processed"}'`,
          ),
        ]),
    ...(kind === 'vllm' && returnsRoutedExperts === null
      ? [
          note(
            `${NAME}: does not report whether it returns routed experts: include_routing_matrix needs --enable-return-routed-experts`,
          ),
        ]
      : []),
  ];
}
