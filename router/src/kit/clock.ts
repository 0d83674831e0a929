/** The longest time that Node's timers wait, 24.8 days: longer ones end at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Monotonic ms, as `performance.now()`: without the getter that the global `performance` is, and the search for its method, which cost as
 * much as the clock itself (benchmark `json-2k`).
 */
export const monotonicMs: () => number = performance.now.bind(performance);

/** Monotonic time that is updated each tick, for deadlines of seconds. */
export interface CoarseClock {
  /** Milliseconds since an arbitrary point. */
  nowMs: number;
}

/**
 * Delayed items in one queue with one timer, which is cheaper than a timer for each. Items leave in the order in which they entered: one
 * with a shorter delay than the item before it waits as long as that one.
 */
export class DelayQueue<T> {
  readonly #onDue: (item: T) => void;
  #items: { item: T; dueMs: number }[] = [];
  #first = 0;
  #timer: NodeJS.Timeout | null = null;

  constructor(onDue: (item: T) => void) {
    this.#onDue = onDue;
  }

  push(item: T, delayMs: number): void {
    this.#items.push({ item, dueMs: performance.now() + delayMs });
    this.#timer ??= setTimeout(this.#run, delayMs);
  }

  readonly #run = (): void => {
    // Half a millisecond early is on time: timers have that resolution, and another wake-up costs more.
    const now = performance.now() + 0.5;
    try {
      // `#timer` is not null meanwhile, so that items that are pushed now start no second timer.
      while (this.#first < this.#items.length && this.#items[this.#first]!.dueMs <= now) {
        this.#onDue(this.#items[this.#first++]!.item);
      }
    } finally {
      this.#timer = this.#timerFromNow(now);
    }
  };

  #timerFromNow(now: number): NodeJS.Timeout | null {
    if (this.#first === this.#items.length) {
      this.#items = [];
      this.#first = 0;
      return null;
    }
    if (this.#first > 1024) {
      this.#items = this.#items.slice(this.#first);
      this.#first = 0;
    }
    return setTimeout(this.#run, Math.max(1, this.#items[this.#first]!.dueMs - now));
  }
}
