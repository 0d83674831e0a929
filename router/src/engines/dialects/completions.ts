import type { Dialect } from '../../generation/dialect.ts';
import { usageRules } from '../../generation/join-rules.ts';
import { readChoices } from './choices.ts';

/** Members of a request for the ids of sampled tokens: vLLM from 0.10.2 on, SGLang from 0.5.19 on. */
export const SOME_IDS = { return_token_ids: 'true' };
/** Also names tokens by their ids in the likeliest ones (vLLM). */
export const namesIds = { ...SOME_IDS, return_tokens_as_token_ids: 'true' };

/** `/v1/completions` of vLLM 0.33 and SGLang 0.5.23. */
export const completions: Dialect = {
  name: 'completions',
  path: '/v1/completions',
  request: {
    ids: 'prompt',
    text: 'prompt',
    params: null,
    limit: 'max_tokens',
    least: 'min_tokens',
    defaultLimit: 16,
    asksForIds: SOME_IDS,
    promptScores: { echo: 'false', prompt_logprobs: 'null' },
  },
  joins: {
    id: 'first',
    created: 'first',
    choices: {
      text: 'text',
      logprobs: {
        text_offset: 'offsets',
        token_logprobs: 'list',
        tokens: 'list',
        top_logprobs: 'list',
        content: 'list',
      },
      finish_reason: 'finish',
      token_ids: 'ids',
      prompt_token_ids: 'prompt_ids',
      prompt_logprobs: 'first',
      routed_experts: 'experts',
    },
    usage: usageRules,
    metadata: { weight_versions: 'spans' },
    sglext: { output_ids: 'all_ids', input_ids: 'first', routed_experts: 'experts' },
  },
  read: readChoices,
};
