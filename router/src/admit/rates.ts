/** Time constant of the exponential decay. */
const MEMORY_MS = 10_000;
const LEAST_SECS = 1;
const MOST_SECS = 60;

/** The recent rate of completed requests, to estimate when a retry makes sense. */
export class Pace {
  /** Completed requests, with exponential decay. */
  #weight = 0;
  #atMs: number;
  readonly #startMs: number;

  constructor(nowMs: number) {
    this.#startMs = nowMs;
    this.#atMs = nowMs;
  }

  note(nowMs: number): void {
    this.#fade(nowMs);
    this.#weight++;
  }

  /** Completed requests per second. */
  perSecond(nowMs: number): number {
    this.#fade(nowMs);
    // Shortly after the start the window is shorter. One request more than were seen: without any, the first may come at any time.
    const heldMs = MEMORY_MS * (1 - Math.exp(-(nowMs - this.#startMs) / MEMORY_MS));
    return ((this.#weight + 1) * 1000) / heldMs;
  }

  secsUntil(departures: number, nowMs: number): number {
    return boundedSecs(departures / this.perSecond(nowMs));
  }

  #fade(nowMs: number): void {
    this.#weight *= Math.exp(-(nowMs - this.#atMs) / MEMORY_MS);
    this.#atMs = nowMs;
  }
}

/** For `retry-after`. */
export const boundedSecs = (secs: number): number => Math.min(MOST_SECS, Math.max(LEAST_SECS, Math.ceil(secs)));

/** A token bucket. @param burst 0: the tokens of one second, at least one */
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

  /** @returns false: there is no token */
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
