/** Logprobs for readers that take numbers only: 0 where one is not known, and the positions of those. */
export function asNumbers(logprobs: Float64Array): { numbers: Float64Array; unknown: number[] } {
  const numbers = logprobs.slice();
  const unknown: number[] = [];
  for (let i = 0; i < numbers.length; i++) {
    if (!Number.isNaN(numbers[i])) continue;
    unknown.push(i);
    numbers[i] = 0;
  }
  return { numbers, unknown };
}
