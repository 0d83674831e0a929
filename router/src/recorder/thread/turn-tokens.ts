import type { Sampled } from './read/sampled.ts';
import { joinedIds } from './tokens/ids.ts';
import { type AskedVersion, coveringSpans, placedSeams } from '../../weights/version-spans.ts';

/** The fields of a turn that follow from its tokens. @param given the tokens that the turn adds before those that were sampled */
export function tokenFields(given: Int32Array, sampled: Omit<Sampled, 'text'>, asked: AskedVersion) {
  const { top } = sampled;
  const start = given.length;
  const length = start + sampled.ids.length;
  const logprobs = new Float64Array(length);
  if (sampled.logprobs === null) logprobs.fill(NaN, start);
  else logprobs.set(sampled.logprobs, start);
  return {
    ids: joinedIds(given, sampled.ids),
    logprobs,
    mask: new Uint8Array(length).fill(1, start),
    versions: coveringSpans(sampled, start, asked),
    unknownLogprobs: logprobs.reduce((count, logprob) => count + (Number.isNaN(logprob) ? 1 : 0), 0),
    outputTokens: sampled.ids.length,
    cachedTokens: sampled.cachedTokens,
    finishReason: sampled.finishReason,
    ...placedSeams(start, asked),
    ...(top === undefined ? {} : { topTokens: new Uint8Array(Buffer.from(JSON.stringify(top))) }),
  };
}
