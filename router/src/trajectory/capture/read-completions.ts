import { markOf } from './experts-cutter.ts';
import { indexerOf } from './tensors.ts';
import { topTokens } from './top-tokens.ts';
import { type OutputSpan, type Sampled, Unreadable, type WrittenSpan, logprobOf, spanOf, tokenIds } from './sampled.ts';

/** An answer of `/v1/completions` with `return_token_ids` (vLLM 0.10 and later, SGLang), or one event of its stream. */
interface CompletionAnswer {
  readonly choices?: readonly CompletionChoice[];
  readonly usage?: {
    readonly prompt_tokens?: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number | null } | null;
  } | null;
  /** SGLang: where there is but one choice. */
  readonly sglext?: { readonly routed_experts?: unknown } | null;
  readonly metadata?: AnswerVersions | null;
}

/** SGLang, of whole answers: those of the first choice. */
export interface AnswerVersions {
  readonly weight_version?: string | number | null;
  /** From 0.5.19 on. */
  readonly weight_versions?: readonly WrittenSpan[] | null;
}

interface CompletionChoice {
  readonly index?: number;
  readonly text?: string;
  readonly token_ids?: readonly number[] | null;
  readonly prompt_token_ids?: readonly number[] | null;
  readonly logprobs?: {
    readonly token_logprobs?: readonly (number | null)[] | null;
    readonly top_logprobs?: readonly (Readonly<Record<string, number | null>> | null)[] | null;
  } | null;
  readonly finish_reason?: string | null;
  /** vLLM. */
  readonly routed_experts?: unknown;
  readonly indexer_topk?: unknown;
}

/** A whole answer, or the events of a stream as far as it came: each with what is new. */
export function readCompletions(events: readonly unknown[]): Sampled[] {
  const byIndex = new Map<number, CompletionChoice[]>();
  let cachedTokens = -1;
  let versions: AnswerVersions | null = null;
  let experts = -1;
  for (const { choices, usage, metadata, sglext } of events as CompletionAnswer[]) {
    experts = Math.max(experts, markOf(sglext?.routed_experts));
    cachedTokens = usage?.prompt_tokens_details?.cached_tokens ?? cachedTokens;
    versions = metadata ?? versions;
    for (const choice of choices ?? []) {
      const { index = 0 } = choice;
      const list = byIndex.get(index);
      if (list === undefined) byIndex.set(index, [choice]);
      else list.push(choice);
    }
  }
  const isAlone = byIndex.size === 1;
  return Array.from(byIndex, ([index, parts]) => {
    const sampled = sampledBy(parts, index, isAlone ? cachedTokens : -1, index === 0 ? versions : null);
    return isAlone && sampled.experts < 0 ? { ...sampled, experts } : sampled;
  });
}

function sampledBy(
  parts: readonly CompletionChoice[],
  index: number,
  cachedTokens: number,
  versions: AnswerVersions | null,
): Sampled {
  if (parts.every(({ token_ids: ids }) => ids === undefined || ids === null)) {
    throw new Unreadable('no token_ids in it');
  }
  const ids = tokenIds(parts.flatMap(({ token_ids: own }) => own ?? []));
  const logprobs = parts.flatMap((part) => part.logprobs?.token_logprobs ?? []);
  return {
    index,
    ids,
    logprobs: logprobs.length === ids.length && ids.length > 0 ? Float64Array.from(logprobs, logprobOf) : null,
    text: Buffer.from(parts.map(({ text }) => text ?? '').join('')),
    finishReason: parts.findLast(({ finish_reason: reason }) => typeof reason === 'string')?.finish_reason ?? '',
    ...versionsOf(versions),
    promptTokens: parts.find(({ prompt_token_ids: prompt }) => Array.isArray(prompt))?.prompt_token_ids?.length ?? -1,
    cachedTokens,
    experts: Math.max(...parts.map(({ routed_experts: each }) => markOf(each))),
    ...indexerOf(parts.find(({ indexer_topk: each }) => markOf(each) >= 0)?.indexer_topk, 0),
    ...topTokens(
      parts.flatMap((part) => part.logprobs?.top_logprobs ?? []),
      ids.length,
    ),
  };
}

/** What an answer, or what is said of a choice, names. */
export function versionsOf(named: AnswerVersions | null): { spans: OutputSpan[]; endVersion: string | null } {
  const spans = named?.weight_versions ?? [];
  const last = named?.weight_version ?? null;
  if (spans.length > 0 || last === null) return { spans: spans.map(spanOf), endVersion: null };
  return { spans: [], endVersion: String(last) };
}
