import { backoff } from '../kit/backoff.ts';

export interface RestartRules {
  readonly firstMs: number;
  readonly maxMs: number;
  /** An engine that served this long is reliable: its next exit is the first of a new series. */
  readonly soundMs: number;
  /** The longest time from the first exit of a series to the next restart. */
  readonly giveUpMs: number;
}

/** When an engine that exited is restarted. */
export class Restarts {
  readonly #rules: RestartRules;
  #deaths = 0;
  #firstDeathMs = 0;

  constructor(rules: RestartRules) {
    this.#rules = rules;
  }

  /** @returns the delay; null if it should not be restarted */
  died(nowMs: number, servedMs: number): number | null {
    const { firstMs, maxMs, soundMs, giveUpMs } = this.#rules;
    if (servedMs >= soundMs) this.#deaths = 0;
    if (this.#deaths++ === 0) this.#firstDeathMs = nowMs;
    const waitMs = backoff(this.#deaths, firstMs, maxMs);
    return nowMs + waitMs - this.#firstDeathMs > giveUpMs ? null : waitMs;
  }
}
