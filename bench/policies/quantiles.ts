export interface Quantiles {
  readonly mean: number;
  readonly p50: number;
  readonly p95: number;
  readonly max: number;
}

/** All NaN when there are no values. */
export function quantiles(values: readonly number[]): Quantiles {
  const sorted = Float64Array.from(values).sort();
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
  const mean = sorted.reduce((sum, value) => sum + value, 0) / sorted.length;
  return { mean, p50: at(0.5), p95: at(0.95), max: at(1) };
}
