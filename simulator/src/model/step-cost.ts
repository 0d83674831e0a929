/** The duration of an engine step: linear in what it computes and in the memory it reads. */

import type { SimOptions } from '../sim-options.ts';

export type StepCosts = Pick<
  SimOptions,
  'stepBaseMs' | 'stepPerSequenceMs' | 'stepPerKvTokenMs' | 'prefillPerTokenMs' | 'prefillPerTokenPositionMs'
>;

export class StepCost {
  readonly #costs: StepCosts;
  #ms: number;

  constructor(costs: StepCosts) {
    this.#costs = costs;
    this.#ms = costs.stepBaseMs;
  }

  /** One token for a sequence with `contextTokens` of KV to read. */
  decode(contextTokens: number): void {
    this.#ms += this.#costs.stepPerSequenceMs + contextTokens * this.#costs.stepPerKvTokenMs;
  }

  /** `tokens` of a prompt from `position` on; attention reads all tokens before each. */
  prefill(position: number, tokens: number): void {
    const meanPosition = position + tokens / 2;
    this.#ms += tokens * (this.#costs.prefillPerTokenMs + meanPosition * this.#costs.prefillPerTokenPositionMs);
  }

  get ms(): number {
    return this.#ms;
  }
}
