/** Upper bounds of the duration buckets, in seconds: from a cache hit to a rollout of hours. */
const SECONDS_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1200, 3600, 14_400,
];

export class Histogram {
  readonly bounds: readonly number[];
  readonly counts: Float64Array;
  sumSecs = 0;
  count = 0;

  constructor(bounds: readonly number[] = SECONDS_BUCKETS) {
    this.bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
  }

  observe(seconds: number): void {
    let bucket = 0;
    while (bucket < this.bounds.length && seconds > this.bounds[bucket]!) bucket++;
    this.counts[bucket]!++;
    this.sumSecs += seconds;
    this.count++;
  }
}

const SLICE_MS = 10_000;
const SLICES = 6;
/** Each slice has its number, the sum and the count of its observations. */
const FIELDS = 3;

/** The sum and count since the start, and the mean of the last minute (50 to 60 s). */
export class Timing {
  sumSecs = 0;
  count = 0;
  readonly #slices = new Float64Array(SLICES * FIELDS);

  observe(seconds: number, nowMs: number): void {
    this.sumSecs += seconds;
    this.count++;
    const slices = this.#slices;
    const slice = Math.floor(nowMs / SLICE_MS);
    const at = (slice % SLICES) * FIELDS;
    if (slices[at] !== slice) {
      slices[at] = slice;
      slices[at + 1] = 0;
      slices[at + 2] = 0;
    }
    slices[at + 1]! += seconds;
    slices[at + 2]!++;
  }

  recentSecs(nowMs: number): number | null {
    const oldest = Math.floor(nowMs / SLICE_MS) - SLICES;
    let sum = 0;
    let count = 0;
    for (let at = 0; at < SLICES * FIELDS; at += FIELDS) {
      if (this.#slices[at]! <= oldest) continue;
      sum += this.#slices[at + 1]!;
      count += this.#slices[at + 2]!;
    }
    return count === 0 ? null : sum / count;
  }
}
