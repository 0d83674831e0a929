const MINUTE_MS = 60_000;

interface Kind {
  sinceMs: number;
  written: number;
  left: number;
}

/** Allows `max` lines of a kind per minute. The others are counted, and summed up in one line after the minute. */
export class LineLimit {
  readonly #max: number;
  readonly #sumUp: (kind: string, count: number) => void;
  readonly #kinds = new Map<string, Kind>();

  /** @param sumUp logs the number of suppressed lines */
  constructor(max: number, sumUp: (kind: string, count: number) => void) {
    this.#max = max;
    this.#sumUp = sumUp;
  }

  /** @returns whether to log the line. `kind`: one of a few, as kinds are kept for a minute */
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

  /** Sums up the minutes that have ended. */
  sweep(nowMs: number): void {
    for (const [kind, { sinceMs, left }] of this.#kinds) {
      if (nowMs - sinceMs < MINUTE_MS) continue;
      this.#kinds.delete(kind);
      if (left > 0) this.#sumUp(kind, left);
    }
  }

  flush(): void {
    this.sweep(Infinity);
  }
}
