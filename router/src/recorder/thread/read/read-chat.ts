import type { ChoiceDelta, ChoicesAnswer } from '../../../engines/dialects/choices.ts';
import { type VersionSpan, type TopTokens, Unreadable, logprobOf } from '../../../generation/delta.ts';
import { markOf } from '../../shared/experts-cutter.ts';
import type { Message, ToolCall } from './message.ts';
import { type Sampled, tokenIds, topTokens } from './sampled.ts';
import { indexerOf } from './tensors.ts';
import { namedSpans } from '../../../weights/version-spans.ts';

/** A choice of a response: the sampled tokens, and the message. */
export interface ChatSample extends Omit<Sampled, 'text'> {
  readonly message: Message;
  /** As the engine returned it; null: not returned. */
  readonly promptIds: readonly number[] | null;
  /** The stream is truncated: more tokens may have been sampled. */
  readonly isTorn: boolean;
}

/** Which weights sampled a choice, as the engine names them. */
interface Versions {
  readonly version: string | null;
  readonly spans: readonly VersionSpan[];
}

/** A choice while its events are read. */
interface Growing {
  message: Record<string, unknown> & { role: string };
  readonly calls: (Record<string, unknown> & { function: Record<string, unknown> })[];
  ids: number[] | null;
  /** The ids that its logprobs name. */
  readonly named: number[];
  logprobs: (number | null)[];
  /** The position of each of them; null: not known. */
  places: (number | null)[];
  /** The likeliest tokens at the same positions. */
  top: TopTokens[];
  finishReason: string | null;
  /** The last event with SGLang's `meta_info`, which says all of the choice; null: none has it. */
  info: ChoiceDelta['info'];
  promptIds: readonly number[] | null;
  versions: Versions | null;
  /** The number of the value with its routed experts; -1: it has none. */
  experts: number;
  indexer: ChoiceDelta['indexer'];
}

/**
 * The choices of a complete response or of the events of a stream. Throws `Unreadable` if ids are missing.
 * @param ends finish reasons of choices of a truncated stream, in place of the engine's
 */
export function readChat(
  answers: readonly ChoicesAnswer[],
  ends: ReadonlyMap<number, string | null> = new Map(),
): ChatSample[] {
  const growing = new Map<number, Growing>();
  let promptIds: readonly number[] | null = null;
  let promptTokens: number | null = null;
  let cachedTokens: number | null = null;
  let experts = -1;
  let versions: Versions | null = null;
  for (const answer of answers) {
    if (answer.error !== null) throw new Unreadable('it ends in an error');
    promptIds = answer.promptIds() ?? promptIds;
    promptTokens = answer.promptTokens ?? promptTokens;
    cachedTokens = answer.cachedTokens ?? cachedTokens;
    experts = Math.max(experts, markOf(answer.experts()));
    const named = answer.versions;
    if (named !== null) versions = { version: named.version, spans: named.spans() };
    for (const choice of answer.deltas) grow(ownOf(growing, choice.index), choice);
    for (const [index, ids] of (answer.outputIds() ?? []).entries()) {
      const own = growing.get(index);
      if (own !== undefined) own.ids = [...ids];
    }
  }
  for (const [index, finishReason] of ends) {
    const own = ownOf(growing, index);
    own.ids ??= [];
    own.finishReason = finishReason;
  }
  if (growing.size === 0) throw new Unreadable('there is no choice in it');
  return [...growing].map(([index, choice]) => {
    const sample = sampleOf(index, choice, index === 0 ? versions : null);
    return {
      ...sample,
      promptIds: choice.promptIds ?? promptIds,
      promptTokens: choice.info?.promptTokens ?? promptTokens,
      experts: choice.experts < 0 && growing.size === 1 ? experts : choice.experts,
      cachedTokens: growing.size > 1 ? sample.cachedTokens : (sample.cachedTokens ?? cachedTokens),
    };
  });
}

function ownOf(growing: Map<number, Growing>, index: number): Growing {
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
      finishReason: null,
      info: null,
      promptIds: null,
      versions: null,
      experts: -1,
      indexer: null,
    };
    growing.set(index, own);
  }
  return own;
}

function grow(own: Growing, choice: ChoiceDelta): void {
  const message = choice.message();
  const text = choice.text();
  if (message !== null) own.message = { ...message } as Growing['message'];
  else addDelta(own, choice.delta() ?? (text === null ? {} : { content: text }));
  const ids = choice.ids();
  // One by one: a spread of a long list overflows the stack.
  if (ids !== null) own.ids ??= [];
  for (const id of ids ?? []) own.ids!.push(id);
  for (const id of choice.namedIds()) own.named.push(id);
  const logprobs = choice.logprobs() ?? [];
  for (const logprob of logprobs) own.logprobs.push(logprob);
  const count = choice.usedTokens;
  for (const i of logprobs.keys())
    own.places.push(count === null || count < logprobs.length ? null : count - logprobs.length + i);
  for (const row of choice.top() ?? []) own.top.push(row);
  own.finishReason = choice.finish ?? own.finishReason;
  own.promptIds ??= choice.promptIds();
  if (choice.hasOwnSpans) own.versions = { version: null, spans: choice.spans() };
  const { info } = choice;
  own.indexer ??= choice.indexer;
  own.experts = Math.max(own.experts, markOf(choice.experts()), markOf(info?.experts()));
  const triples = info?.triples() ?? null;
  if (triples === null) return;
  own.info = info;
  own.ids = triples.map(([, id]) => id);
  own.logprobs = triples.map(([logprob]) => logprob);
}

function addDelta(own: Growing, { tool_calls: calls, ...texts }: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(texts)) {
    if (typeof value !== 'string') continue;
    const before = own.message[name];
    own.message[name] = name === 'role' || typeof before !== 'string' ? value : before + value;
  }
  for (const { index = 0, function: called, ...rest } of (calls ?? []) as readonly ToolCall[]) {
    const call = (own.calls[index] ??= { function: { arguments: '' } });
    for (const [name, value] of Object.entries(rest)) if (value !== null) call[name] = value;
    if (typeof called?.name === 'string') call.function.name = called.name;
    if (typeof called?.arguments === 'string') call.function.arguments += called.arguments;
    own.message.tool_calls = own.calls;
  }
}

function sampleOf(index: number, choice: Growing, versions: Versions | null) {
  const { message, ids, named, info, finishReason } = choice;
  if (ids === null) throw new Unreadable('the ids of its tokens are not in it');
  const expected = info?.count ?? null;
  if (expected !== null && expected !== ids.length) {
    throw new Unreadable(`${ids.length} ids of ${expected} tokens are in it`);
  }
  if (named.length > 0 && (named.length !== ids.length || named.some((id, i) => id !== ids[i]))) {
    throw new Unreadable('its logprobs are of other tokens');
  }
  const told = info === null ? null : { version: info.version, spans: info.spans() };
  const isSilent = told === null || (told.version === null && told.spans.length === 0);
  const own = isSilent ? (choice.versions ?? versions) : told;
  return {
    index,
    message,
    ids: tokenIds(ids),
    logprobs: logprobsOf(choice, ids.length),
    finishReason: info?.finish ?? finishReason,
    ...namedSpans(own?.version ?? null, own?.spans ?? []),
    isTorn: false,
    cachedTokens: info?.cachedTokens ?? null,
    ...indexerOf(info?.indexer ?? choice.indexer),
    ...topTokens(info?.top() ?? choice.top, ids.length),
  };
}

/** NaN if the engine left one out, as SGLang does in streams for a token without text. */
function logprobsOf({ logprobs, places }: Growing, length: number): Float64Array | null {
  if (logprobs.length === length) return Float64Array.from(logprobs, logprobOf);
  if (places.some((place) => place === null || place >= length)) return null;
  const placed = new Float64Array(length).fill(NaN);
  for (const [i, place] of places.entries()) placed[place!] = logprobOf(logprobs[i]);
  return placed;
}
