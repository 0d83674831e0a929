/** The wait after the `n`th failure in a row, from 1 on: `firstMs`, multiplied by `factor` each time, at most `maxMs`. */
export const backoff = (n: number, firstMs: number, maxMs: number, factor = 2): number =>
  Math.min(maxMs, firstMs * factor ** (n - 1));
