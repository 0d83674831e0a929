/** What is further back than a few of these is forgotten. */
const MEMORY_MS = 10_000;
const LEAST_SECS = 1;
const MOST_SECS = 60;

/** How fast places have become free lately, and so when a retry makes sense. Time is the caller's. */
export class Pace {
  /** Departures, each worth less the longer ago it was. */
  #weight = 0;
  #atMs: number;
  readonly #startMs: number;

  constructor(nowMs: number) {
    this.#startMs = nowMs;
    this.#atMs = nowMs;
  }

  /** A request has ended. */
  note(nowMs: number): void {
    this.#fade(nowMs);
    this.#weight++;
  }

  /** Departures per second. */
  perSecond(nowMs: number): number {
    this.#fade(nowMs);
    // At the beginning the memory is not full yet: of what it can hold by now. And one more than were seen: where none
    // was, the first may come at any time, but the less likely soon the longer there was none.
    const heldMs = MEMORY_MS * (1 - Math.exp(-(nowMs - this.#startMs) / MEMORY_MS));
    return ((this.#weight + 1) * 1000) / heldMs;
  }

  /** Seconds until so many have left, for `retry-after`. */
  secsUntil(departures: number, nowMs: number): number {
    return boundedSecs(departures / this.perSecond(nowMs));
  }

  #fade(nowMs: number): void {
    this.#weight *= Math.exp(-(nowMs - this.#atMs) / MEMORY_MS);
    this.#atMs = nowMs;
  }
}

/** As `retry-after` says it: whole, at least 1, at most 60. */
export const boundedSecs = (secs: number): number => Math.min(MOST_SECS, Math.max(LEAST_SECS, Math.ceil(secs)));

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
