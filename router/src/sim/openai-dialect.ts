/** The OpenAI endpoints exist twice in the wild: vLLM and SGLang agree on the protocol, not on every field. */

import type { Core } from './core.ts';
import type { Sequence } from './sequence.ts';
import type { Delta } from './stream-out.ts';

/** One /v1/completions or /v1/chat/completions request, read. */
export interface OpenAiRequest {
  core: Core;
  /** The answer's id. */
  id: string;
  /** Unix seconds. */
  created: number;
  model: string;
  isChat: boolean;
  /** Samples per prompt; choice index = prompt index * samples + sample index. */
  samples: number;
  sequences: Sequence[];
  /** Alternatives per token beside the chosen one's logprob; null when logprobs were not asked for. */
  topLogprobs: number | null;
  /** vLLM, of completions: alternatives per prompt token; null when not asked for. */
  promptLogprobs: number | null;
  tokensAsIds: boolean;
  returnTokenIds: boolean;
  returnMetaInfo: boolean;
  /** SGLang: of the prompt, in each choice. */
  returnPromptIds: boolean;
  /** SGLang: in `sglext`, the only place for ids of a stream. */
  extension: { inputIds: boolean; outputIds: boolean };
  echo: boolean;
  includeUsage: boolean;
  /** With each event, of its choice so far. */
  continuousUsage: boolean;
}

export interface OpenAiDialect {
  answer(request: OpenAiRequest): object;
  /** Events that one step of one choice makes. */
  events(request: OpenAiRequest, delta: Delta): object[];
  /** Between the last choice's last event and [DONE]. */
  finale(request: OpenAiRequest): object[];
}

export interface TokenCounts {
  prompt_tokens: number;
  total_tokens: number;
  completion_tokens: number;
}

/** A prompt counts once however many samples it has. */
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
