/**
 * So many a second, evenly over time: a bucket that fills at that rate and holds `burst`, without it what comes in one second, and at
 * least one. Time is the caller's.
 */
export class RateLimit {
  readonly #perMs: number;
  readonly #burst: number;
  #tokens: number;
  #atMs: number;

  constructor(perSecond: number, nowMs: number, burst = 0) {
    this.#perMs = perSecond / 1000;
    this.#burst = Math.max(1, burst > 0 ? burst : perSecond);
    this.#tokens = this.#burst;
    this.#atMs = nowMs;
  }

  /** @returns false: none is there now. */
  take(nowMs: number): boolean {
    this.#fill(nowMs);
    // A millionth too few is a rounding error.
    if (this.#tokens < 1 - 1e-6) return false;
    this.#tokens--;
    return true;
  }

  /** Milliseconds until `count` of them are available, if none is taken in between. */
  msUntil(count: number, nowMs: number): number {
    this.#fill(nowMs);
    return Math.max(0, (count - this.#tokens) / this.#perMs);
  }

  #fill(nowMs: number): void {
    this.#tokens = Math.min(this.#burst, this.#tokens + (nowMs - this.#atMs) * this.#perMs);
    this.#atMs = nowMs;
  }
}
