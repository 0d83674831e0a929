/** Beyond this number the sessions used longest ago are forgotten. */
const MAX_SESSIONS = 100_000;

interface Start {
  readonly snapshot: string;
  /** When a request of the session was last sent (monotonic ms). */
  readonly seenMs: number;
}

/** The snapshot that each session began with. */
export class SessionStarts {
  /** The one used longest ago is the first. */
  readonly #starts = new Map<string, Start>();
  readonly #nowMs: () => number;
  readonly #ttlMs: () => number;

  constructor(nowMs: () => number, ttlMs: () => number) {
    this.#nowMs = nowMs;
    this.#ttlMs = ttlMs;
  }

  get size(): number {
    return this.#starts.size;
  }

  /** A request of the session is sent to an engine with `snapshot`. @returns the snapshot that the session began with */
  sent(session: string, snapshot: string): string {
    const seenMs = this.#nowMs();
    const known = this.#starts.get(session);
    this.#starts.delete(session);
    this.#forgetIdle(seenMs);
    const start = { snapshot: known?.snapshot ?? snapshot, seenMs };
    this.#starts.set(session, start);
    return start.snapshot;
  }

  ended(session: string): void {
    this.#starts.delete(session);
  }

  #forgetIdle(nowMs: number): void {
    for (const [session, { seenMs }] of this.#starts) {
      if (this.#starts.size < MAX_SESSIONS && nowMs - seenMs <= this.#ttlMs()) return;
      this.#starts.delete(session);
    }
  }
}
