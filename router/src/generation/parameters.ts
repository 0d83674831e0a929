/** Parameters of a request, each with the values that ask for nothing. SGLang 0.5.23 and vLLM 0.33.0. */
export type Parameters = Readonly<Record<string, readonly unknown[]>>;

export const penalties: Parameters = {
  frequency_penalty: [0],
  presence_penalty: [0],
  repetition_penalty: [1],
  no_repeat_ngram_size: [0],
};

/** What changes the distribution of a token by the tokens before it, in other ways. */
export const processors: Parameters = {
  custom_logit_processor: [''],
  custom_params: [],
  logits_processors: [],
  bad_words: [],
  thinking_token_budget: [],
  max_thinking_tokens: [],
  vllm_xargs: [],
  extra_args: [],
  trace_decode_token_ids: [],
};

/** @param neutral the values that ask for nothing, beside null and what is empty */
export function isNeutral(value: unknown, neutral: readonly unknown[]): boolean {
  if (value === undefined || value === null || neutral.includes(value)) return true;
  if (Array.isArray(value)) return value.length === 0;
  if (typeof value !== 'object') return false;
  // `response_format` of text is the default.
  return Object.keys(value).length === 0 || (value as { type?: unknown }).type === 'text';
}
