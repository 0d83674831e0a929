const MINUTE_MS = 60_000;

interface Kind {
  sinceMs: number;
  written: number;
  left: number;
}

/**
 * Lets the first `max` lines of a kind in each minute through and counts the others, which are summed up in one line when the
 * minute is over.
 */
export class LineLimit {
  readonly #max: number;
  readonly #sumUp: (kind: string, count: number) => void;
  readonly #kinds = new Map<string, Kind>();

  /** @param sumUp writes the line for those that were left out */
  constructor(max: number, sumUp: (kind: string, count: number) => void) {
    this.#max = max;
    this.#sumUp = sumUp;
  }

  /** @returns whether the line is to be written. `kind`: one of a few, they are kept for a minute. */
  take(kind: string, nowMs: number): boolean {
    let state = this.#kinds.get(kind);
    if (state === undefined) this.#kinds.set(kind, (state = { sinceMs: nowMs, written: 0, left: 0 }));
    if (state.written < this.#max) {
      state.written++;
      return true;
    }
    state.left++;
    return false;
  }

  /** Sums up the minutes that are over. */
  sweep(nowMs: number): void {
    for (const [kind, { sinceMs, left }] of this.#kinds) {
      if (nowMs - sinceMs < MINUTE_MS) continue;
      this.#kinds.delete(kind);
      if (left > 0) this.#sumUp(kind, left);
    }
  }

  /** Sums up what was left out so far. */
  flush(): void {
    this.sweep(Infinity);
  }
}
