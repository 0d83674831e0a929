import type { Form } from './request.ts';

/**
 * What becomes of a member when two parts of a generation are made one. The second part was asked for with the tokens of the first one in
 * its prompt.
 * - `first`: as the first part has it
 * - `prompt`: tokens of the prompt, `count`: sampled tokens; `cached`: tokens of the prompt that were cached
 * - `text`, `list`, `offsets`: one after the other, unless each event of a stream has only what is new
 * - `once`: as the first part has it, in the first event of a stream alone
 * - `prompt_ids`: the prompt of the first part; `all_ids`: the sampled tokens of all parts, for each choice
 * - `ids`: as `list`, and removed where only the router asked for them
 * - `spans`: the weight versions of both
 * - `finish`: why it ended; `experts`: a row for each token but the last
 */
export type Rule =
  | 'first'
  | 'once'
  | 'prompt'
  | 'count'
  | 'cached'
  | 'text'
  | 'list'
  | 'offsets'
  | 'ids'
  | 'prompt_ids'
  | 'all_ids'
  | 'spans'
  | 'finish'
  | 'experts'
  | Rules;

export interface Rules {
  readonly [member: string]: Rule;
}

const usage: Rules = {
  prompt_tokens: 'prompt',
  completion_tokens: 'count',
  prompt_tokens_details: { cached_tokens: 'cached' },
};

/** SGLang's `/generate` (0.5.23): the members that the router does not know stay those of the last part. */
const generate: Rules = {
  text: 'text',
  output_ids: 'list',
  meta_info: {
    id: 'first',
    finish_reason: 'finish',
    prompt_tokens: 'prompt',
    completion_tokens: 'count',
    cached_tokens: 'cached',
    cached_tokens_details: 'first',
    input_token_logprobs: 'first',
    input_top_logprobs: 'first',
    input_token_ids_logprobs: 'first',
    output_token_logprobs: 'list',
    output_token_logprobs_length: 'count',
    output_top_logprobs: 'list',
    output_token_ids_logprobs: 'list',
    weight_versions: 'spans',
    routed_experts: 'experts',
  },
};

/** `/v1/completions` of vLLM 0.32 and SGLang 0.5.23. */
const completions: Rules = {
  id: 'first',
  created: 'first',
  choices: {
    text: 'text',
    logprobs: { text_offset: 'offsets', token_logprobs: 'list', tokens: 'list', top_logprobs: 'list', content: 'list' },
    finish_reason: 'finish',
    token_ids: 'ids',
    prompt_token_ids: 'prompt_ids',
    prompt_logprobs: 'first',
    routed_experts: 'experts',
  },
  usage,
  metadata: { weight_versions: 'spans' },
  sglext: { output_ids: 'all_ids', input_ids: 'first', routed_experts: 'experts' },
};

/** vLLM's `/inference/v1/generate` (0.32). */
const inference: Rules = {
  request_id: 'first',
  created: 'first',
  prompt_token_ids: 'once',
  prompt_logprobs: 'first',
  choices: {
    finish_reason: 'finish',
    token_ids: 'list',
    logprobs: { content: 'list' },
    weight_versions: 'spans',
    routed_experts: 'experts',
  },
  usage,
};

export const rulesOf: Readonly<Record<Form, Rules>> = { generate, completions, inference };
