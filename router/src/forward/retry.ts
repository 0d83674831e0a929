export interface RetryOptions {
  readonly maxRetries: number;
  /** Retries of work that an engine may have begun. */
  readonly maxBegunRetries: number;
  readonly initialBackoffMs: number;
  readonly maxBackoffMs: number;
  readonly backoffMultiplier: number;
  /** By how much of itself a wait is made longer or shorter at most. */
  readonly jitterFactor: number;
  /** Answers after which another worker is tried. */
  readonly statuses: ReadonlySet<number>;
  /** A worker that asks to wait longer than this is not tried again. */
  readonly retryAfterMaxMs: number;
  /** Tries after an error status, as a share of all exchanges. */
  readonly budget: number;
}

/** So many tries a second the budget allows in any case: it is there for outages, not for a quiet afternoon. */
const FLOOR_PER_SEC = 10;
/** What a quiet time saves up. */
const MAX_SAVED = 100;

/** How many tries are left for now: every exchange adds a part of one. */
export class RetryAllowance {
  #left = MAX_SAVED;
  #filledMs = -Infinity;

  /** An exchange began. */
  earn(share: number): void {
    if (this.#left < MAX_SAVED) this.#left += share;
  }

  /** @returns whether one more try is within the budget; then it is counted. */
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
