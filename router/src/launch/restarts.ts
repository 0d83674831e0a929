export interface RestartRules {
  readonly firstMs: number;
  readonly maxMs: number;
  /** An engine that served so long is taken for sound: its next death is the first of a row. */
  readonly soundMs: number;
  /** A row of deaths may last so long. */
  readonly giveUpMs: number;
}

/** When an engine that died is started again. */
export class Restarts {
  readonly #rules: RestartRules;
  #deaths = 0;
  #firstDeathMs = 0;

  constructor(rules: RestartRules) {
    this.#rules = rules;
  }

  /** @returns how long to wait from now; null: it is not worth another start. */
  died(nowMs: number, servedMs: number): number | null {
    const { firstMs, maxMs, soundMs, giveUpMs } = this.#rules;
    if (servedMs >= soundMs) this.#deaths = 0;
    if (this.#deaths++ === 0) this.#firstDeathMs = nowMs;
    const waitMs = Math.min(maxMs, firstMs * 2 ** (this.#deaths - 1));
    return nowMs + waitMs - this.#firstDeathMs > giveUpMs ? null : waitMs;
  }
}
