import type { Turn } from '../shared/turn.ts';
import type { Sampled } from './read/sampled.ts';
import { topBytes } from './read/top-tokens.ts';
import { type AskedVersion, coveringSpans, placedSeams } from '../../weights/version-spans.ts';

/** The fields of a turn that follow from its tokens. */
type TokenFields = Pick<
  Turn,
  | 'ids'
  | 'logprobs'
  | 'mask'
  | 'versions'
  | 'unknownLogprobs'
  | 'outputTokens'
  | 'cachedTokens'
  | 'finishReason'
  | 'seams'
  | 'topTokens'
>;

/** @param given the tokens that the turn adds before those that were sampled */
export function tokenFields(given: Int32Array, sampled: Omit<Sampled, 'text'>, asked: AskedVersion): TokenFields {
  const start = given.length;
  const length = start + sampled.ids.length;
  const ids = new Int32Array(length);
  ids.set(given);
  ids.set(sampled.ids, start);
  const logprobs = new Float64Array(length);
  if (sampled.logprobs === null) logprobs.fill(NaN, start);
  else logprobs.set(sampled.logprobs, start);
  return {
    ids,
    logprobs,
    mask: new Uint8Array(length).fill(1, start),
    versions: coveringSpans(sampled, start, asked),
    unknownLogprobs: logprobs.reduce((count, logprob) => count + (Number.isNaN(logprob) ? 1 : 0), 0),
    outputTokens: sampled.ids.length,
    cachedTokens: sampled.cachedTokens,
    finishReason: sampled.finishReason,
    ...placedSeams(start, asked),
    ...topBytes(sampled),
  };
}
