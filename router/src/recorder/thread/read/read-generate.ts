import { markOf } from '../../shared/experts-cutter.ts';
import { indexerOf } from './tensors.ts';
import { topTokens } from './top-tokens.ts';
import { type Sampled, Unreadable, logprobOf, tokenIds } from './sampled.ts';
import { type AnswerVersions, type VersionSpan, spansOf } from '../../../weights/version-spans.ts';

/** A response of SGLang's `/generate`, or one event of its stream (0.5). */
interface GenerateAnswer {
  readonly text?: string;
  readonly output_ids?: readonly number[];
  readonly index?: number;
  readonly meta_info?:
    | (AnswerVersions & {
        readonly finish_reason?: { readonly type?: string } | null;
        readonly prompt_tokens?: number;
        readonly completion_tokens?: number;
        readonly cached_tokens?: number;
        readonly routed_experts?: unknown;
        readonly indexer_topk?: unknown;
        readonly indexer_topk_num_layers?: unknown;
        readonly output_top_logprobs?:
          | readonly (readonly (readonly [number | null, number, (string | null)?])[] | null)[]
          | null;
        readonly output_token_logprobs?: readonly (readonly [number | null, number, ...unknown[]])[];
      })
    | null;
}

/** A complete response: one object, or a list for several prompts or samples. */
export function readGenerate(value: unknown): Sampled[] {
  const answers = (Array.isArray(value) ? value : [value]) as GenerateAnswer[];
  return answers.map((answer, index) => sampledBy([answer], index, false));
}

/** The received events of a stream. */
export function readGenerateEvents(events: readonly unknown[]): Sampled[] {
  const told = (events as GenerateAnswer[]).filter(({ meta_info: info }) => Boolean(info));
  const byIndex = Map.groupBy(told, ({ index = 0 }) => index);
  return Array.from(byIndex, ([index, list]) => sampledBy(list, index, true));
}

/** @param events of one sample: each with all tokens so far (SGLang's default), or with the new ones (`--incremental-streaming-output`) */
function sampledBy(events: readonly GenerateAnswer[], index: number, isStream: boolean): Sampled {
  const last = events.at(-1)!;
  const info = last.meta_info;
  if (info === undefined || info === null) throw new Unreadable('no meta_info in it');
  const total = info.completion_tokens;
  const parts = total === idsOf(last).length ? [last] : events;
  const ids = tokenIds(parts.flatMap(idsOf));
  if (total !== undefined && ids.length !== total) throw new Unreadable(`${ids.length} ids of ${total} tokens in it`);
  return {
    index,
    ids,
    logprobs: logprobsOf(parts, ids),
    text: Buffer.from(parts.map(({ text }) => text ?? '').join('')),
    finishReason: info.finish_reason?.type ?? '',
    ...(isStream && (info.weight_versions ?? []).length === 0
      ? { spans: spansByEvent(events), endVersion: null }
      : spansOf(info)),
    promptTokens: info.prompt_tokens ?? -1,
    cachedTokens: info.cached_tokens ?? -1,
    experts: Math.max(...events.map(({ meta_info: each }) => markOf(each?.routed_experts))),
    ...indexerOf(info.indexer_topk, info.indexer_topk_num_layers),
    ...topTokens(
      inFull(parts, ids.length, ({ output_top_logprobs: top }) => top),
      ids.length,
    ),
  };
}

/** A list with an item for each token. Some releases write it in full where ids are incremental. */
function inFull<T>(
  parts: readonly GenerateAnswer[],
  length: number,
  listOf: (info: NonNullable<GenerateAnswer['meta_info']>) => readonly T[] | null | undefined,
): readonly T[] {
  const own = listOf(parts.at(-1)!.meta_info!) ?? [];
  return own.length === length ? own : parts.flatMap(({ meta_info: info }) => (info && listOf(info)) ?? []);
}

/** Older releases have ids only beside the logprobs. */
function idsOf({ output_ids: ids, meta_info: info }: GenerateAnswer): readonly number[] {
  return ids ?? info?.output_token_logprobs?.map(([, id]) => id) ?? [];
}

function logprobsOf(parts: readonly GenerateAnswer[], ids: Int32Array): Float64Array | null {
  if (parts.at(-1)!.meta_info?.output_token_logprobs === undefined) return null;
  const triples = inFull(parts, ids.length, ({ output_token_logprobs: own }) => own);
  if (triples.length !== ids.length || triples.some(([, id], i) => id !== ids[i])) {
    throw new Unreadable('its logprobs are of other tokens');
  }
  return Float64Array.from(triples, ([logprob]) => logprobOf(logprob));
}

/**
 * Events of a stream have the version of their new tokens. If the version changed from one event to the next, and several tokens are new,
 * it is not known which of them came before the change.
 */
function spansByEvent(events: readonly GenerateAnswer[]): VersionSpan[] {
  const spans: VersionSpan[] = [];
  let start = 0;
  let known: string | null = null;
  for (const { meta_info: info } of events) {
    const end = info?.completion_tokens ?? start;
    if (end <= start) continue;
    const named = info?.weight_version ?? null;
    const version: string | null = named === null ? null : String(named);
    const isSure = start === 0 || version === known || end === start + 1;
    spans.push({ version: isSure ? version : null, from: start, to: end });
    known = version;
    start = end;
  }
  return spans;
}
