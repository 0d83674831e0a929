import { markOf } from '../../shared/experts-cutter.ts';
import { indexerOf } from './tensors.ts';
import { topTokens } from './top-tokens.ts';
import { type Sampled, Unreadable, type WrittenSpan, logprobOf, spanOf, tokenIds } from './sampled.ts';

/** A response of vLLM's `/inference/v1/generate` (0.32), or one event of its stream. */
interface InferenceAnswer {
  readonly choices?: readonly InferenceChoice[];
  readonly prompt_token_ids?: readonly number[] | null;
  readonly usage?: {
    readonly prompt_tokens_details?: { readonly cached_tokens?: number | null } | null;
  } | null;
}

interface InferenceChoice {
  readonly index?: number;
  readonly token_ids?: readonly number[] | null;
  readonly logprobs?: { readonly content?: readonly InferenceLogprob[] | null } | null;
  readonly finish_reason?: string | null;
  readonly routed_experts?: unknown;
  readonly indexer_topk?: unknown;
  /** In a stream: on the last event of a choice. */
  readonly weight_versions?: readonly WrittenSpan[] | null;
}

interface InferenceLogprob {
  readonly token_id?: number;
  readonly logprob?: number | null;
  readonly top_logprobs?: readonly { readonly token_id?: number; readonly logprob?: number | null }[] | null;
}

/** A complete response, or the received events of a stream, each with the new tokens. */
export function readInference(events: readonly unknown[]): Sampled[] {
  const byIndex = new Map<number, InferenceChoice[]>();
  let cachedTokens = -1;
  let promptTokens = -1;
  for (const { choices, usage, prompt_token_ids: prompt } of events as InferenceAnswer[]) {
    cachedTokens = usage?.prompt_tokens_details?.cached_tokens ?? cachedTokens;
    promptTokens = prompt?.length ?? promptTokens;
    for (const choice of choices ?? []) {
      const { index = 0 } = choice;
      const list = byIndex.get(index);
      if (list === undefined) byIndex.set(index, [choice]);
      else list.push(choice);
    }
  }
  const isAlone = byIndex.size === 1;
  return Array.from(byIndex, ([index, parts]) => sampledBy(parts, index, isAlone ? cachedTokens : -1, promptTokens));
}

function sampledBy(
  parts: readonly InferenceChoice[],
  index: number,
  cachedTokens: number,
  promptTokens: number,
): Sampled {
  if (parts.every(({ token_ids: ids }) => ids === undefined || ids === null)) {
    throw new Unreadable('no token_ids in it');
  }
  const ids = tokenIds(parts.flatMap(({ token_ids: own }) => own ?? []));
  return {
    index,
    ids,
    logprobs: logprobsOf(parts, ids),
    text: null,
    finishReason: parts.findLast(({ finish_reason: reason }) => typeof reason === 'string')?.finish_reason ?? '',
    spans: parts.flatMap(({ weight_versions: spans }) => spans ?? []).map(spanOf),
    endVersion: null,
    promptTokens,
    cachedTokens,
    experts: Math.max(...parts.map(({ routed_experts: each }) => markOf(each))),
    ...indexerOf(parts.find(({ indexer_topk: each }) => markOf(each) >= 0)?.indexer_topk, 0),
    ...topTokens(
      parts.flatMap(({ logprobs }) => logprobs?.content?.map(({ top_logprobs: top }) => top) ?? []),
      ids.length,
    ),
  };
}

function logprobsOf(parts: readonly InferenceChoice[], ids: Int32Array): Float64Array | null {
  const entries = parts.flatMap(({ logprobs }) => logprobs?.content ?? []);
  if (entries.length === 0) return null;
  if (entries.length !== ids.length || entries.some(({ token_id: id }, i) => id !== ids[i])) {
    throw new Unreadable('its logprobs are of other tokens');
  }
  return Float64Array.from(entries, ({ logprob }) => logprobOf(logprob));
}
