export interface RetryOptions {
  readonly maxRetries: number;
  /** Retries of work that an engine may have begun. */
  readonly maxBegunRetries: number;
  readonly initialBackoffMs: number;
  readonly maxBackoffMs: number;
  readonly backoffMultiplier: number;
  /** A delay is changed at random by at most this fraction of it. */
  readonly jitterFactor: number;
  /** Statuses after which another worker is tried. */
  readonly statuses: ReadonlySet<number>;
  /** A worker that asks to wait longer than this is not tried again. */
  readonly retryAfterMaxMs: number;
  /** Retries after an error status, as a fraction of all requests. */
  readonly budget: number;
}

/** Retries per second that the budget always allows, because it is for outages. */
const FLOOR_PER_SEC = 10;
/** The most retries that can accumulate. */
const MAX_SAVED = 100;

/** The retries that the budget allows now: every request adds a fraction of one. */
export class RetryAllowance {
  #left = MAX_SAVED;
  #filledMs = -Infinity;

  /** A request was admitted. */
  earn(share: number): void {
    if (this.#left < MAX_SAVED) this.#left += share;
  }

  /** @returns whether one more retry is within the budget; it is counted then */
  spend(nowMs: number): boolean {
    const sinceSecs = Math.min(60, (nowMs - this.#filledMs) / 1000);
    this.#filledMs = nowMs;
    this.#left = Math.min(MAX_SAVED, this.#left + FLOOR_PER_SEC * sinceSecs);
    if (this.#left < 1) return false;
    this.#left--;
    return true;
  }
}

/** The wait before the `n`th time (from 0) that a worker is tried again. `random`: 0 to 1. */
export function backoffMs(options: RetryOptions, n: number, random: number): number {
  const { initialBackoffMs, maxBackoffMs, backoffMultiplier, jitterFactor } = options;
  const wait = Math.min(maxBackoffMs, initialBackoffMs * backoffMultiplier ** n);
  return Math.min(maxBackoffMs, wait * (1 + jitterFactor * (2 * random - 1)));
}

/** Milliseconds that a `retry-after` asks for (RFC 9110 section 10.2.3: seconds, or a date); 0: nothing, or nothing readable. */
export function retryAfterMs(value: string | undefined, nowEpochMs: number): number {
  if (value === undefined || value.length > 40) return 0;
  if (/^\d{1,9}$/.test(value)) return Number(value) * 1000;
  const date = value.endsWith(' GMT') ? Date.parse(value) : Number.NaN;
  return Number.isNaN(date) ? 0 : Math.max(0, date - nowEpochMs);
}
