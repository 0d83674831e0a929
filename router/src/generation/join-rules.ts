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

/** Of OpenAI's API. */
export const usageRules: Rules = {
  prompt_tokens: 'prompt',
  completion_tokens: 'count',
  prompt_tokens_details: { cached_tokens: 'cached' },
};
