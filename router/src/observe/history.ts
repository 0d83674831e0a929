import type { Histogram } from './durations.ts';
import type { Meters } from './meters.ts';

/** 15 minutes. */
const POINTS = 900;
const EVERY_MS = 1_000;

/** The fields of a point, in this order; rates are per second, since the previous point. */
export const historyFields = [
  'at',
  'finished',
  'failed',
  'prompt_tokens',
  /** NaN: no engine has reported any. */
  'cached_tokens',
  /** Prompt tokens of responses that report cached tokens. */
  'cacheable_prompt_tokens',
  'output_tokens',
  /** Seconds, of the requests that ended since the previous point; NaN: none ended. */
  'first_token_p50',
  'first_token_p95',
  'token_gap_p50',
  'token_gap_p95',
  'response_p50',
  'response_p95',
  'in_flight',
  'queued',
  'held',
] as const;
const WIDTH = historyFields.length;

export interface HistorySources {
  readonly meters: Meters;
  readonly inFlight: () => number;
  readonly queued: () => number;
  readonly held: () => number;
}

/** One point a second from counters that exist anyway: 100 KB, and some microseconds a second. */
export class History {
  readonly #sources: HistorySources;
  readonly #points = new Float64Array(POINTS * WIDTH);
  /** Points ever made; the next one replaces the oldest. */
  #count = 0;
  #lastMs = 0;
  #before: ReturnType<typeof totalsOf>;
  readonly #histograms: readonly Histogram[];
  #counts: readonly Float64Array[];

  constructor(sources: HistorySources) {
    this.#sources = sources;
    this.#before = totalsOf(sources.meters);
    const { firstToken, tokenGap, duration } = sources.meters;
    this.#histograms = [firstToken, tokenGap, duration];
    this.#counts = this.#histograms.map(({ counts }) => counts.slice());
  }

  sweep(nowMs: number): void {
    // Ticks may be early by some milliseconds.
    const elapsedMs = nowMs - this.#lastMs;
    if (elapsedMs < EVERY_MS - 50) return;
    this.#lastMs = nowMs;
    const { meters, inFlight, queued, held } = this.#sources;
    const now = totalsOf(meters);
    // A total falls when the counters of a removed worker are dropped; NaN, not known, counts as 0.
    const rates = now.map((total, i) => (Math.max(0, total - (this.#before[i] || 0)) * 1_000) / elapsedMs);
    const quantiles = this.#histograms.flatMap(({ bounds, counts }, i) => {
      const recent = counts.map((count, bucket) => count - this.#counts[i]![bucket]!);
      return [quantileOf(bounds, recent, 0.5), quantileOf(bounds, recent, 0.95)];
    });
    this.#points.set(
      [Date.now(), ...rates, ...quantiles, inFlight(), queued(), held()],
      (this.#count % POINTS) * WIDTH,
    );
    this.#count++;
    this.#before = now;
    this.#counts = this.#histograms.map(({ counts }) => counts.slice());
  }

  get count(): number {
    return this.#count;
  }

  /** The kept points after the first `count`. */
  since(count: number): number[][] {
    const first = Math.max(count, this.#count - POINTS);
    return Array.from({ length: Math.max(0, this.#count - first) }, (_, i) => {
      const at = ((first + i) % POINTS) * WIDTH;
      return Array.from(this.#points.subarray(at, at + WIDTH));
    });
  }
}

/** In the order of `historyFields`, from `finished` to `output_tokens`. */
function totalsOf(meters: Meters): readonly number[] {
  const { outcomes } = meters;
  const { byStatusClass, promptTokens, cachedTokens, cacheablePromptTokens, outputTokens } = meters.ofAll();
  const failed = outcomes.refused + outcomes.cut + byStatusClass[5]!;
  const finished = outcomes.complete + outcomes.refused + outcomes.cut + outcomes.client_left;
  return [finished, failed, promptTokens, cachedTokens ?? Number.NaN, cacheablePromptTokens, outputTokens];
}

/** Interpolated within a bucket. @param counts observations per bucket */
export function quantileOf(bounds: readonly number[], counts: Float64Array, quantile: number): number {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return Number.NaN;
  let below = 0;
  for (const [i, bound] of bounds.entries()) {
    const count = counts[i]!;
    if (below + count >= quantile * total) {
      const from = i === 0 ? 0 : bounds[i - 1]!;
      return from + ((bound - from) * (quantile * total - below)) / count;
    }
    below += count;
  }
  return bounds.at(-1)!;
}
