/** vLLM and SGLang agree on the protocol of the OpenAI endpoints, not on every field. */

import type { Core } from '../model/core.ts';
import type { Sequence } from '../model/sequence.ts';
import type { Delta } from './stream-out.ts';

/** A parsed request for /v1/completions or /v1/chat/completions. */
export interface OpenAiRequest {
  core: Core;
  /** The id of the response. */
  id: string;
  /** Unix seconds. */
  created: number;
  model: string;
  isChat: boolean;
  /** Samples per prompt; choice index = prompt index * samples + sample index. */
  samples: number;
  sequences: Sequence[];
  /** Alternatives per token beside the chosen one; null if no logprobs were requested. */
  topLogprobs: number | null;
  /** vLLM, of completions: alternatives per prompt token; null when not asked for. */
  promptLogprobs: number | null;
  tokensAsIds: boolean;
  returnTokenIds: boolean;
  /** vLLM (0.33): the spans of weight versions in each choice. */
  returnVersions: boolean;
  /** The first row of routed experts that the response has; null: it has none. */
  expertsFrom: number | null;
  returnMetaInfo: boolean;
  /** SGLang: the ids of the prompt, in each choice. */
  returnPromptIds: boolean;
  /** SGLang: ids in `sglext`, the only place for ids in a stream. */
  extension: { inputIds: boolean; outputIds: boolean };
  echo: boolean;
  includeUsage: boolean;
  /** In each event, the usage of its choice so far. */
  continuousUsage: boolean;
}

export interface OpenAiDialect {
  answer(request: OpenAiRequest): object;
  /** The events of one step of one choice. */
  events(request: OpenAiRequest, delta: Delta): object[];
  /** The events between the last choice's last event and [DONE]. */
  finale(request: OpenAiRequest): object[];
}

export interface TokenCounts {
  prompt_tokens: number;
  total_tokens: number;
  completion_tokens: number;
}

/** A prompt counts once, whatever its number of samples. */
export function countTokens({ sequences, samples }: OpenAiRequest): {
  counts: TokenCounts;
  cached: number;
} {
  let prompt = 0;
  let completion = 0;
  let cached = 0;
  for (const [index, sequence] of sequences.entries()) {
    completion += sequence.output.length;
    if (index % samples > 0) continue;
    prompt += sequence.prompt.length;
    cached += Math.max(0, sequence.cachedTokens);
  }
  const counts = {
    prompt_tokens: prompt,
    total_tokens: prompt + completion,
    completion_tokens: completion,
  };
  return { counts, cached };
}
