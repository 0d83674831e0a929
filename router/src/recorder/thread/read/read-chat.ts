import { markOf } from '../../shared/experts-cutter.ts';
import { indexerOf } from './tensors.ts';
import { topTokens } from './top-tokens.ts';
import { type Sampled, Unreadable, logprobOf, tokenIds } from './sampled.ts';
import type { Message, ToolCall } from './message.ts';
import { type AnswerVersions, type WrittenSpan, spansOf } from '../../../weights/version-spans.ts';

/** A choice of a response: the sampled tokens, and the message. */
export interface ChatSample extends Omit<Sampled, 'text'> {
  readonly message: Message;
  /** As the engine returned it; null: not returned. */
  readonly promptIds: readonly number[] | null;
  /** The stream is truncated: more tokens may have been sampled. */
  readonly isTorn: boolean;
}

/** The fields of a response that are read: all three forms, complete ones and events of streams. */
export interface Answer {
  readonly object?: string;
  readonly choices?: readonly Choice[];
  readonly prompt_token_ids?: readonly number[] | null;
  readonly usage?: {
    /** In an event: of its choice so far. */
    readonly completion_tokens?: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number | null } | null;
  } | null;
  readonly metadata?: AnswerVersions | null;
  readonly sglext?: {
    readonly input_ids?: readonly number[];
    readonly output_ids?: readonly (readonly number[])[];
    readonly routed_experts?: unknown;
  } | null;
  readonly error?: unknown;
}

export interface Choice {
  readonly index?: number;
  readonly message?: Message;
  readonly delta?: Delta;
  /** Of a completion. */
  readonly text?: string;
  readonly finish_reason?: string | null;
  /** SGLang: the token, or the text, that ended it. */
  readonly matched_stop?: number | string | null;
  readonly token_ids?: readonly number[] | null;
  readonly prompt_token_ids?: readonly number[] | null;
  readonly logprobs?: {
    readonly content?: readonly ChatLogprob[] | null;
    readonly token_logprobs?: readonly (number | null)[] | null;
    readonly top_logprobs?: readonly (Readonly<Record<string, number | null>> | null)[] | null;
  } | null;
  readonly meta_info?: MetaInfo | null;
  /** vLLM. */
  readonly routed_experts?: unknown;
  readonly indexer_topk?: unknown;
  /** Of `/inference/v1/generate`; in a stream on the last event of a choice. */
  readonly weight_versions?: readonly WrittenSpan[] | null;
}

interface ChatLogprob {
  readonly logprob: number;
  /** Of `/inference/v1/generate`. */
  readonly token_id?: number;
  readonly bytes?: readonly number[] | null;
  readonly top_logprobs?: readonly { readonly token?: string; readonly logprob?: number | null }[] | null;
}

interface MetaInfo extends AnswerVersions {
  readonly routed_experts?: unknown;
  readonly indexer_topk?: unknown;
  readonly indexer_topk_num_layers?: unknown;
  readonly output_top_logprobs?:
    | readonly (readonly (readonly [number | null, number, (string | null)?])[] | null)[]
    | null;
  readonly finish_reason?: { readonly type?: string } | null;
  readonly completion_tokens?: number;
  readonly cached_tokens?: number;
  readonly output_token_logprobs?: readonly (readonly [number | null, number, ...unknown[]])[];
}

interface Delta {
  readonly role?: string;
  readonly content?: string | null;
  readonly tool_calls?: readonly ToolCall[] | null;
  readonly [member: string]: unknown;
}

/** A choice while its events are read. */
interface Growing {
  message: Record<string, unknown> & { role: string };
  readonly calls: (Record<string, unknown> & { function: Record<string, unknown> })[];
  ids: number[] | null;
  /** The ids that its logprobs name. */
  readonly named: number[];
  logprobs: (number | null)[];
  /** The position of each of them; -1: not known. */
  places: number[];
  /** The likeliest tokens at the same positions. */
  top: Parameters<typeof topTokens>[0][number][];
  finishReason: string;
  info: MetaInfo | null;
  promptIds: readonly number[] | null;
  versions: AnswerVersions | null;
  /** The number of the value with its routed experts; -1: it has none. */
  experts: number;
  /** The tokens of its sparse attention, if the choice itself has them. */
  indexer: unknown;
}

/** The choices of a complete response or of the events of a stream. Throws `Unreadable` if ids are missing. */
export function readChat(values: readonly unknown[]): ChatSample[] {
  const growing = new Map<number, Growing>();
  let promptIds: readonly number[] | null = null;
  let cachedTokens = -1;
  let experts = -1;
  let versions: AnswerVersions | null = null;
  for (const answer of values as readonly Answer[]) {
    if (answer.error !== undefined) throw new Unreadable('it ends in an error');
    promptIds = answer.prompt_token_ids ?? answer.sglext?.input_ids ?? promptIds;
    cachedTokens = answer.usage?.prompt_tokens_details?.cached_tokens ?? cachedTokens;
    experts = Math.max(experts, markOf(answer.sglext?.routed_experts));
    versions = answer.metadata ?? versions;
    for (const choice of answer.choices ?? []) grow(growing, choice, answer.usage?.completion_tokens ?? -1);
    for (const [index, ids] of (answer.sglext?.output_ids ?? []).entries()) {
      const own = growing.get(index);
      if (own !== undefined) own.ids = [...ids];
    }
  }
  if (growing.size === 0) throw new Unreadable('there is no choice in it');
  return [...growing].map(([index, choice]) => {
    const sample = sampleOf(index, choice, index === 0 ? versions : null);
    return {
      ...sample,
      promptIds: choice.promptIds ?? promptIds,
      experts: choice.experts < 0 && growing.size === 1 ? experts : choice.experts,
      cachedTokens: sample.cachedTokens >= 0 || growing.size > 1 ? sample.cachedTokens : cachedTokens,
    };
  });
}

/** @param count tokens of the choice so far; -1: not known */
function grow(growing: Map<number, Growing>, choice: Choice, count: number): void {
  const { index = 0 } = choice;
  let own = growing.get(index);
  if (own === undefined) {
    own = {
      message: { role: 'assistant' },
      calls: [],
      ids: null,
      named: [],
      logprobs: [],
      places: [],
      top: [],
      finishReason: '',
      info: null,
      promptIds: null,
      versions: null,
      experts: -1,
      indexer: null,
    };
    growing.set(index, own);
  }
  if (choice.message !== undefined) own.message = { ...choice.message };
  else addDelta(own, choice.delta ?? (choice.text === undefined ? {} : { content: choice.text }));
  if (choice.token_ids) own.ids = (own.ids ?? []).concat(choice.token_ids);
  for (const { token_id: id } of choice.logprobs?.content ?? []) if (id !== undefined) own.named.push(id);
  const logprobs = choice.logprobs?.content?.map(({ logprob }) => logprob) ?? choice.logprobs?.token_logprobs ?? [];
  own.logprobs = own.logprobs.concat(logprobs);
  for (const i of logprobs.keys()) own.places.push(count < logprobs.length ? -1 : count - logprobs.length + i);
  own.top.push(
    ...(choice.logprobs?.content?.map(({ top_logprobs: top }) => top) ?? choice.logprobs?.top_logprobs ?? []),
  );
  if (typeof choice.finish_reason === 'string') own.finishReason = choice.finish_reason;
  own.promptIds = choice.prompt_token_ids ?? own.promptIds;
  if (choice.weight_versions) own.versions = choice;
  const info = choice.meta_info ?? null;
  own.indexer ??= choice.indexer_topk ?? null;
  own.experts = Math.max(own.experts, markOf(choice.routed_experts), markOf(info?.routed_experts));
  if (info?.output_token_logprobs === undefined) return;
  own.info = info;
  own.ids = info.output_token_logprobs.map(([, id]) => id);
  own.logprobs = info.output_token_logprobs.map(([logprob]) => logprob);
}

function addDelta(own: Growing, { tool_calls: calls, ...texts }: Delta): void {
  for (const [name, value] of Object.entries(texts)) {
    if (typeof value !== 'string') continue;
    const before = own.message[name];
    own.message[name] = name === 'role' || typeof before !== 'string' ? value : before + value;
  }
  for (const { index = 0, function: called, ...rest } of calls ?? []) {
    const call = (own.calls[index] ??= { function: { arguments: '' } });
    for (const [name, value] of Object.entries(rest)) if (value !== null) call[name] = value;
    if (typeof called?.name === 'string') call.function.name = called.name;
    if (typeof called?.arguments === 'string') call.function.arguments += called.arguments;
    own.message.tool_calls = own.calls;
  }
}

function sampleOf(index: number, choice: Growing, versions: AnswerVersions | null) {
  const { message, ids, named, info, finishReason } = choice;
  if (ids === null) throw new Unreadable('the ids of its tokens are not in it');
  const expected = info?.completion_tokens;
  if (expected !== undefined && expected !== ids.length) {
    throw new Unreadable(`${ids.length} ids of ${expected} tokens are in it`);
  }
  if (named.length > 0 && (named.length !== ids.length || named.some((id, i) => id !== ids[i]))) {
    throw new Unreadable('its logprobs are of other tokens');
  }
  return {
    index,
    message,
    ids: tokenIds(ids),
    logprobs: logprobsOf(choice, ids.length),
    finishReason: info?.finish_reason?.type ?? finishReason,
    ...spansOf(info?.weight_version === undefined ? (choice.versions ?? versions) : info),
    promptTokens: -1,
    isTorn: false,
    cachedTokens: info?.cached_tokens ?? -1,
    ...indexerOf(info?.indexer_topk ?? choice.indexer, info?.indexer_topk_num_layers),
    ...topTokens(info?.output_top_logprobs ?? choice.top, ids.length),
  };
}

/** NaN if the engine left one out, as SGLang does in streams for a token without text. */
function logprobsOf({ logprobs, places }: Growing, length: number): Float64Array | null {
  if (logprobs.length === length) return Float64Array.from(logprobs, logprobOf);
  if (places.some((place) => place < 0 || place >= length)) return null;
  const placed = new Float64Array(length).fill(NaN);
  for (const [i, place] of places.entries()) placed[place] = logprobOf(logprobs[i]);
  return placed;
}
