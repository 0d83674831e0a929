import type { Json } from '../kit/json-members.ts';

/** Tokens `from` (included) to `to` (excluded) were sampled by weights of this version. */
export interface VersionSpan {
  /** null: it is not known. */
  readonly version: string | null;
  readonly from: number;
  readonly to: number;
  /** The engine named it at the end of these tokens. */
  readonly isNamed?: true;
  /** Where `version` is null: what the engine named its weights when it was last asked before these tokens. Left out: not known. */
  readonly before?: string;
  /** The same, asked after these tokens. */
  readonly after?: string;
}

/** A span as engines write it (SGLang 0.5.19, vLLM 0.33): `[start, end)`. */
export interface WrittenSpan {
  readonly version: string | number | null;
  readonly start: number;
  readonly end: number;
}

/** The likeliest tokens at one position, as the engine returns them. null: the engine does not return it. */
export type TopTokens = readonly (readonly [logprob: number | null, id: number | null, text: string | null])[];

/** What a response, or an event of a stream, says of one choice. Lists are decoded when they are asked for: an event may have all tokens so far. */
export interface Delta {
  readonly index: number;
  /** The engine's finish reason; null: the choice goes on. */
  readonly finish: string | null;
  /** The stop string, or the id of the stop token, that ended the choice; null: something else did. */
  readonly stop: string | number | null;
  /** Sampled tokens of the choice so far, as SGLang's `/generate` counts them; null: not returned. */
  readonly count: number | null;
  /** The version of the weights that the event names. */
  readonly version: string | null;
  /** The text: new text, or all text so far; null: none is returned. */
  text(): string | null;
  /** Bytes of the text as it is written, without decoding it; null: none is returned. */
  readonly textBytes: number | null;
  readonly endsInSpace: boolean;
  /** Ids of sampled tokens: the new ones, or all so far; null: none are returned. */
  ids(): readonly number[] | null;
  /** The number of these ids, without decoding them. */
  idCount(): number;
  /** For each of these ids; null: not returned. */
  logprobs(): readonly (number | null)[] | null;
  /** The likeliest tokens at the position of each of these ids; null: not returned. */
  top(): readonly TopTokens[] | null;
  promptIds(): readonly number[] | null;
  /** Which weights sampled which tokens; empty: not returned. */
  spans(): readonly VersionSpan[];
  /** The same as the engine writes it. */
  writtenSpans(): readonly WrittenSpan[];
  /** The value of routed experts; null: not returned. */
  experts(): unknown;
  /** What SGLang's `/generate` says of a sample that it did not sample to its end. */
  readonly failure: { readonly message: string; readonly status: number | null } | null;
}

/** What a response, or an event of a stream, says. */
export interface Answer {
  /** The engine reports that it failed, with this status; 0: without one. null: it does not report that. */
  readonly error: number | null;
  /** Empty: it is about no tokens (usage, for example). */
  readonly deltas: readonly Delta[];
  /** Tokens of the prompt that were in the engine's cache. */
  readonly cachedTokens: number | null;
  /**
   * A row for each token of the prompt: its logprob and the likeliest tokens there; null: not returned.
   * @param ids of the prompt, which vLLM looks up by id
   */
  promptLogprobs(ids: () => readonly number[]): readonly PromptToken[] | null;
}

/** A token of the prompt; null: the engine returns nothing about it, as about the first one. */
export type PromptToken = { readonly logprob: number | null; readonly top: TopTokens | null } | null;

/**
 * vLLM writes this if it has no logprob of a token, and in place of lower ones (0.32, `ChatCompletionLogProb`): no sampled token is that
 * unlikely.
 */
const NO_LOGPROB = -9999;

/** A logprob of an engine; NaN: not known. */
export const logprobOf = (value: number | null | undefined): number =>
  value === null || value === undefined || value === NO_LOGPROB ? NaN : value;

/** A response, or an event, that lacks what was asked for, or says what can't be true. */
export class Unreadable extends Error {}

/** A version as text: engines write numbers too. */
export const versionOf = (json: Json | null): string | null => json?.scalar() ?? null;

export const readSpans = (written: readonly WrittenSpan[]): VersionSpan[] =>
  written.map(({ version, start: from, end: to }) => ({
    version: version === null ? null : String(version),
    from,
    to,
  }));

export const writtenSpansOf = (json: Json | null): readonly WrittenSpan[] =>
  (json?.valueIfAny() ?? []) as readonly WrittenSpan[];

export const spansOf = (json: Json | null): VersionSpan[] => readSpans(writtenSpansOf(json));

/** The text of a member, without decoding it. */
export function textOf(json: Json | null): Pick<Delta, 'text' | 'textBytes' | 'endsInSpace'> {
  return {
    text: () => json?.text() ?? null,
    textBytes: json === null ? null : json.end - json.start - 2,
    endsInSpace: json !== null && json.bytes[json.end - 2] === SPACE,
  };
}

const SPACE = 0x20;
