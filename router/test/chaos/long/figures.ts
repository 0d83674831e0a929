export interface Point {
  readonly atMs: number;
  readonly value: number;
}

/** Growth per minute, by least squares. */
export function slopePerMinute(points: readonly Point[]): number {
  const mean = (of: (point: Point) => number): number =>
    points.reduce((sum, point) => sum + of(point), 0) / points.length;
  const at = mean(({ atMs }) => atMs);
  const level = mean(({ value }) => value);
  const spread = points.reduce((sum, point) => sum + (point.atMs - at) ** 2, 0);
  if (spread === 0) return 0;
  return (points.reduce((sum, point) => sum + (point.atMs - at) * (point.value - level), 0) / spread) * 60_000;
}

/** The points of the second half of the time. */
export function lastHalf(points: readonly Point[]): Point[] {
  const from = points[0]?.atMs ?? 0;
  const middle = (from + (points.at(-1)?.atMs ?? 0)) / 2;
  return points.filter(({ atMs }) => atMs >= middle);
}

export function percentile(numbers: readonly number[], share: number): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

export const mb = (bytes: number): string => (bytes / 1e6).toFixed(1);
