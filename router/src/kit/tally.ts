/** A sum for each name. A name whose sum is 0 takes no memory. */
export class Tally {
  readonly #sums = new Map<string, number>();

  add(name: string, amount: number): void {
    const sum = this.of(name) + amount;
    if (sum === 0) this.#sums.delete(name);
    else this.#sums.set(name, sum);
  }

  of(name: string): number {
    return this.#sums.get(name) ?? 0;
  }

  names(): Iterable<string> {
    return this.#sums.keys();
  }

  /** The name with the largest sum; null: there is none. */
  largest(): string | null {
    let largest: string | null = null;
    for (const [name, sum] of this.#sums) if (largest === null || sum > this.of(largest)) largest = name;
    return largest;
  }
}
