import type { Dialect } from '../../generation/dialect.ts';
import { usageRules } from '../../generation/join-rules.ts';
import { readChoices } from './choices.ts';

/** vLLM's own API (0.33): token ids in and token ids out. */
export const inference: Dialect = {
  name: 'inference',
  path: '/inference/v1/generate',
  request: {
    ids: 'token_ids',
    text: null,
    params: 'sampling_params',
    limit: 'max_tokens',
    least: 'min_tokens',
    // As many as fit (0.32; 16 in 0.22).
    defaultLimit: Infinity,
    asksForIds: null,
    // Of the ids vLLM takes as many rows as the prompt has, and their start only with them (0.32).
    promptScores: { prompt_logprobs: 'null', prompt_logprob_token_ids: 'null', prompt_logprob_start: 'null' },
  },
  joins: {
    request_id: 'first',
    created: 'first',
    prompt_token_ids: 'once',
    prompt_logprobs: 'first',
    prompt_token_id_logprobs: 'first',
    choices: {
      finish_reason: 'finish',
      token_ids: 'list',
      logprobs: { content: 'list' },
      sampling_mask: 'list',
      weight_versions: 'spans',
      routed_experts: 'experts',
    },
    usage: usageRules,
  },
  read: readChoices,
};
