import type { Asked } from '../generation/asked.ts';

/**
 * Parameters with which a generation can't be continued exactly from its tokens: an engine keeps more of it than they tell. By reason, each
 * with the values that ask for nothing. SGLang 0.5.23 and vLLM 0.32.0.
 */
const parameters: Readonly<Record<string, Readonly<Record<string, readonly unknown[]>>>> = {
  samples: { n: [1], best_of: [1] },
  beam: { use_beam_search: [false], beam_width: [0, 1] },
  // The state of a grammar begins with the first sampled token.
  grammar: {
    json_schema: [''],
    regex: [''],
    ebnf: [''],
    structural_tag: [''],
    structured_outputs: [],
    guided_json: [],
    guided_regex: [],
    guided_choice: [],
    guided_grammar: [],
    response_format: [],
  },
  // They count sampled tokens, and those of the prompt in another way or not.
  penalties: { frequency_penalty: [0], presence_penalty: [0], repetition_penalty: [1], no_repeat_ngram_size: [0] },
  processors: {
    custom_logit_processor: [''],
    custom_params: [],
    logits_processors: [],
    bad_words: [],
    thinking_token_budget: [],
    max_thinking_tokens: [],
    repetition_detection: [],
    vllm_xargs: [],
  },
  stop_regex: { stop_regex: [''] },
  hidden_states: { return_hidden_states: [false] },
  media: {
    image_data: [],
    video_data: [],
    audio_data: [],
    features: [],
    input_embeds: [],
    prompt_embeds: [],
    multi_modal_data: [],
  },
  prompt: { suffix: [''], session_params: [], truncate_prompt_tokens: [], kv_transfer_params: [] },
};

/** @returns the reason why a generation can't be continued; '' if there is none */
export function reasonOf(asked: Asked): string {
  for (const [reason, names] of Object.entries(parameters)) {
    for (const [name, neutral] of Object.entries(names)) {
      if (!isNeutral(asked.get(name), neutral) || !isNeutral(asked.param(name), neutral)) return reason;
    }
  }
  return '';
}

function isNeutral(value: unknown, neutral: readonly unknown[]): boolean {
  if (value === undefined || value === null || neutral.includes(value)) return true;
  if (Array.isArray(value)) return value.length === 0;
  if (typeof value !== 'object') return false;
  // `response_format` of text is the default.
  return Object.keys(value).length === 0 || (value as { type?: unknown }).type === 'text';
}
