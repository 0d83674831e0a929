export interface HangOptions {
  /** Checks in a row without any answer that are a proof; at least two. */
  readonly failureThreshold: number;
  /** How long an engine's figures may show running requests and no token. */
  readonly hungAfterMs: number;
  /** The same for an engine that may be paused and does not report it. */
  readonly maxPauseMs: number;
}

/** What one check of an engine found. */
export interface Look {
  /** When the engine was asked: its figures may be as old as that, if this process was stopped before it read them. */
  readonly askedMs: number;
  readonly nowMs: number;
  /** It answered something: its health path, its loads or its metrics. */
  readonly isAnswering: boolean;
  readonly isWell: boolean;
  /** It is known to be paused, asleep or loading. */
  readonly isPaused: boolean;
  readonly mayBePaused: boolean;
  /** The requests that it runs by its own count; null if it reports none. */
  readonly running: number | null;
  /** The figures that change while it works, as text. */
  readonly progress: string;
}

/** `unclear`: neither is proven. */
export type Verdict = { readonly hangs: string } | 'works' | 'unclear';

/**
 * Decides whether an engine hangs. A slow engine does not hang: the proof is that it answers nothing at all, or that
 * its own figures show running requests and no token for a while. A pause is never a proof.
 */
export class HangJudge {
  readonly #options: HangOptions;
  #silentLooks = 0;
  #progress: string | null = null;
  /** Since when its figures are unchanged. */
  #sinceMs = 0;
  /** From the first check without progress, because a hanging engine may report a pause later on. */
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
      return isProof ? { hangs: 'no response to health, load and metrics requests' } : 'unclear';
    }
    this.#silentLooks = 0;
    return this.#judgeFigures(look);
  }

  #judgeFigures({ askedMs, nowMs, isWell, mayBePaused, running, progress }: Look): Verdict {
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
    const ms = askedMs - this.#sinceMs;
    if (ms < (this.#mayBePaused ? Math.max(hungAfterMs, maxPauseMs) : hungAfterMs)) return 'unclear';
    return { hangs: `it runs ${running} requests by its own count and made no token for ${Math.floor(ms / 1000)} s` };
  }
}
