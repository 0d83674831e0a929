export interface HangOptions {
  /** Looks in a row without any answer that prove it, two at least. */
  readonly failureThreshold: number;
  /** How long an engine's figures may show running requests and no token. */
  readonly hungAfterMs: number;
  /** The same where the engine may be paused and doesn't say. */
  readonly maxPauseMs: number;
}

/** What one look at an engine found. */
export interface Look {
  readonly nowMs: number;
  /** It answered something: its health path, its loads, its metrics. */
  readonly isAnswering: boolean;
  /** It passed its health check. */
  readonly isWell: boolean;
  /** It is known to be paused, asleep or loading. */
  readonly isPaused: boolean;
  readonly mayBePaused: boolean;
  /** Requests that it runs by its own count; null: it reports none. */
  readonly running: number | null;
  /** All that changes while it works, as text. */
  readonly progress: string;
}

/** `unclear`: there is no proof that it hangs, and none that it doesn't. */
export type Verdict = { readonly hangs: string } | 'works' | 'unclear';

/**
 * Decides whether an engine hangs. A slow engine doesn't: the proof is that it answers nothing at all any more, or that its own
 * figures show running requests and no token for a while. A pause is never a proof.
 */
export class HangJudge {
  readonly #options: HangOptions;
  #silentLooks = 0;
  #progress: string | null = null;
  /** Since when its figures are what they are. */
  #sinceMs = 0;
  /** What the first look said that found no progress: a hanging engine says the same of a pause later on. */
  #mayBePaused: boolean | null = null;

  constructor(options: HangOptions) {
    this.#options = options;
  }

  reset(): void {
    this.#silentLooks = 0;
    this.#progress = null;
  }

  judge(look: Look): Verdict {
    if (look.isPaused) {
      this.reset();
      return 'unclear';
    }
    if (!look.isAnswering) {
      const isProof = ++this.#silentLooks >= Math.max(2, this.#options.failureThreshold);
      return isProof ? { hangs: 'it answers nothing any more: health, load and metrics time out' } : 'unclear';
    }
    this.#silentLooks = 0;
    return this.#judgeFigures(look);
  }

  #judgeFigures({ nowMs, isWell, mayBePaused, running, progress }: Look): Verdict {
    if (running === null) return isWell ? 'works' : 'unclear';
    if (running === 0) {
      this.#progress = null;
      return 'works';
    }
    if (progress !== this.#progress) {
      const isFirst = this.#progress === null;
      this.#progress = progress;
      this.#sinceMs = nowMs;
      this.#mayBePaused = null;
      return isFirst && !isWell ? 'unclear' : 'works';
    }
    this.#mayBePaused ??= mayBePaused;
    const { hungAfterMs, maxPauseMs } = this.#options;
    const ms = nowMs - this.#sinceMs;
    if (ms < (this.#mayBePaused ? Math.max(hungAfterMs, maxPauseMs) : hungAfterMs)) return 'unclear';
    return { hangs: `it runs ${running} requests by its own count and made no token for ${Math.floor(ms / 1000)} s` };
  }
}
