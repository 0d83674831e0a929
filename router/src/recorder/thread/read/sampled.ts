import { type TopTokens, Unreadable, type VersionSpan } from '../../../generation/delta.ts';
import type { NamedSpans } from '../../../weights/version-spans.ts';

/** A sample for one prompt, as the engine returned it. */
export interface Sampled extends NamedSpans {
  /** Its index among the samples of its request. */
  readonly index: number;
  readonly ids: Int32Array;
  /** NaN: not returned for this token. null: not requested. */
  readonly logprobs: Float64Array | null;
  /** UTF-8; null: the engine returned ids without text. */
  readonly text: Buffer | null;
  /** null: the response is truncated. */
  readonly finishReason: string | null;
  /** From the router's own weight swaps. Left out: not known. */
  readonly known?: readonly VersionSpan[];
  /** null: not returned. */
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  /** The number of its routed experts in the response (`markOf`); -1: it has none. */
  readonly experts: number;
  /** The same for its sparse attention, with the number of layers (0: not known). Left out: it has none. */
  readonly indexer?: { readonly cut: number; readonly layers: number };
  /** The likeliest tokens at each position. Left out: not requested. */
  readonly top?: readonly TopTokens[];
}

/**
 * @param places the likeliest tokens for each sampled token
 * @param count of sampled tokens: with another number of places it is not known which token each belongs to
 */
export function topTokens(places: readonly TopTokens[], count: number): Pick<Sampled, 'top'> {
  return places.length !== count || places.every(({ length }) => length === 0) ? {} : { top: places };
}

/** The ids of an engine. Other JSON values are refused: as ids they would be wrong without notice. */
export function tokenIds(values: readonly unknown[]): Int32Array {
  const ids = Int32Array.from(values as readonly number[]);
  const at = ids.findIndex((id, i) => id !== values[i] || id < 0);
  if (at >= 0) throw new Unreadable(`${JSON.stringify(values[at])} where a token id is wanted`);
  return ids;
}
