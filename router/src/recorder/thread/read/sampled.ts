/** Versions of the weights that output tokens `[start, end)` were sampled by. */
export interface OutputSpan {
  /** null: the engine did not say. */
  readonly version: string | null;
  readonly start: number;
  readonly end: number;
}

/** What was sampled for one prompt, as its engine says. */
export interface Sampled {
  /** Its place among those of its request. */
  readonly index: number;
  readonly ids: Int32Array;
  /** NaN: not returned for this token. null: not requested. */
  readonly logprobs: Float64Array | null;
  /** UTF-8; null: the engine gave ids and no text. */
  readonly text: Buffer | null;
  /** '' where the answer broke off. */
  readonly finishReason: string;
  readonly spans: readonly OutputSpan[];
  /** By the router's own weight swaps. Left out: nothing is known. */
  readonly known?: readonly OutputSpan[];
  /** The version at the end of the answer, where the engine names no spans; null: it names spans, or nothing. */
  readonly endVersion: string | null;
  /** -1 where the engine does not say. */
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** Which of the answer's routed experts are its own (`markOf`); -1: it came with none. */
  readonly experts: number;
  /** The same of what its sparse attention looked at, and of how many layers that is (0: not told). Left out: it came with none. */
  readonly indexer?: { readonly cut: number; readonly layers: number };
  /** The likeliest tokens at each position. Left out: not requested. */
  readonly top?: readonly TopTokens[];
}

/** The likeliest tokens at one position, as the engine returns them. null: the engine names tokens by text, without ids. */
export type TopTokens = readonly (readonly [logprob: number | null, id: number | null, text: string | null])[];

/**
 * vLLM writes this where it has no logprob of a token, and in place of anything less (0.32, `ChatCompletionLogProb`): no sampled token
 * is that unlikely.
 */
const NO_LOGPROB = -9999;

/** A logprob as an engine wrote it; NaN: it is not known. */
export const logprobOf = (value: number | null | undefined): number =>
  value === null || value === undefined || value === NO_LOGPROB ? NaN : value;

/** A span as engines write it. */
export interface WrittenSpan {
  readonly version: string | number;
  readonly start: number;
  readonly end: number;
}

export const spanOf = ({ version, start, end }: WrittenSpan): OutputSpan => ({ version: String(version), start, end });

/** The version, or the versions, that SGLang names in whole answers: of completions and chats those of the first choice. */
export interface AnswerVersions {
  readonly weight_version?: string | number | null;
  /** From 0.5.19 on. */
  readonly weight_versions?: readonly WrittenSpan[] | null;
}

/** What an answer, or the `meta_info` of a choice, names. */
export function versionsOf(named: AnswerVersions | null): Pick<Sampled, 'spans' | 'endVersion'> {
  const spans = named?.weight_versions ?? [];
  const last = named?.weight_version ?? null;
  if (spans.length > 0 || last === null) return { spans: spans.map(spanOf), endVersion: null };
  return { spans: [], endVersion: String(last) };
}

/** An answer that can't be read, and why. */
export class Unreadable extends Error {}

/** The ids of an engine. Other JSON values are refused: as ids they would be wrong without notice. */
export function tokenIds(values: readonly unknown[]): Int32Array {
  const ids = Int32Array.from(values as readonly number[]);
  const at = ids.findIndex((id, i) => id !== values[i] || id < 0);
  if (at >= 0) throw new Unreadable(`${JSON.stringify(values[at])} where a token id is wanted`);
  return ids;
}
