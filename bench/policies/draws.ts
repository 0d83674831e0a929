import type { Random } from '../../router/src/kit/rng.ts';

/** Random numbers of several distributions from one generator. */
export class Draws {
  readonly #random: Random;
  #spare: number | undefined;

  constructor(random: Random) {
    this.#random = random;
  }

  uniform(from: number, to: number): number {
    return from + (to - from) * this.#random();
  }

  normal(mean: number, deviation: number): number {
    return mean + deviation * this.#standardNormal();
  }

  /** @param sigma deviation of the logarithm; `mean` is that of the number itself */
  logNormal(mean: number, sigma: number): number {
    return Math.exp(this.normal(Math.log(mean) - (sigma * sigma) / 2, sigma));
  }

  /** The time to the next of events with `rate` per unit of time. */
  exponential(rate: number): number {
    return -Math.log(1 - this.#random()) / rate;
  }

  pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.#random() * items.length)]!;
  }

  /** An index into `weights`, with a probability proportional to its weight. */
  weighted(weights: readonly number[]): number {
    let left = this.#random() * weights.reduce((sum, weight) => sum + weight, 0);
    for (let i = 0; i < weights.length; i++) {
      left -= weights[i]!;
      if (left < 0) return i;
    }
    return weights.length - 1;
  }

  /** A new array in a random order. */
  shuffled<T>(items: readonly T[]): T[] {
    const order = [...items];
    for (let i = order.length - 1; i > 0; i--) {
      const j = Math.floor(this.#random() * (i + 1));
      [order[i], order[j]] = [order[j]!, order[i]!];
    }
    return order;
  }

  /** Box-Muller, which yields two at a time. */
  #standardNormal(): number {
    if (this.#spare !== undefined) {
      const spare = this.#spare;
      this.#spare = undefined;
      return spare;
    }
    const radius = Math.sqrt(-2 * Math.log(1 - this.#random()));
    const angle = 2 * Math.PI * this.#random();
    this.#spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  }
}
