import { RouterError } from '../kit/errors.ts';

/** How many exchanges may be under way at once: a true bound, held until the last byte of the answer. */
export class ConcurrencyLimit {
  /** 0: no bound. */
  max: number;
  current = 0;

  constructor(max: number) {
    this.max = max;
  }

  /** @returns the refusal, or null: then `leave` must follow. */
  enter(): RouterError | null {
    if (this.max > 0 && this.current >= this.max) {
      return new RouterError(
        'too_many_requests',
        `${this.max} requests are under way, the most that --max-concurrent-requests allows. Retry later.`,
        { retryAfterSecs: 1 },
      );
    }
    this.current++;
    return null;
  }

  leave(): void {
    this.current--;
  }
}
