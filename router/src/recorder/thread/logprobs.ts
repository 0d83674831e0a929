/** How many sampled tokens have a logprob that is not known, which is NaN. */
export function unknownCount(logprobs: Float64Array, mask: Uint8Array): number {
  let count = 0;
  for (let i = 0; i < mask.length; i++) if (mask[i] === 1 && Number.isNaN(logprobs[i])) count++;
  return count;
}

/** Logprobs for readers that take numbers only: 0 where one is not known, and the positions of those. */
export function asNumbers(logprobs: Float64Array): { numbers: Float64Array; unknown: number[] } {
  const numbers = logprobs.slice();
  const unknown: number[] = [];
  for (const [i, logprob] of logprobs.entries()) {
    if (!Number.isNaN(logprob)) continue;
    unknown.push(i);
    numbers[i] = 0;
  }
  return { numbers, unknown };
}
