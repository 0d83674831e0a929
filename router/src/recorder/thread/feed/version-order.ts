/** `step-7`: what is before the number, and the number. */
const NUMBERED = /^(.*?)(\d{1,15})$/s;

/**
 * Names of weight versions, the oldest first. Names that differ in the number at their end only are sorted by it, because a turn of an older
 * version may be recorded after the first turn of a newer one; other names by when they were first seen.
 */
export class VersionOrder {
  readonly #names: string[] = [];
  #ranks = new Map<string, number>();

  /** @returns whether the name is new */
  add(name: string): boolean {
    if (this.#ranks.has(name)) return false;
    const after = this.#names.findIndex((other) => isOlder(name, other));
    if (after < 0) this.#ranks.set(name, this.#names.push(name) - 1);
    else {
      this.#names.splice(after, 0, name);
      this.#ranks = new Map(this.#names.map((each, rank) => [each, rank]));
    }
    return true;
  }

  get newest(): string | null {
    return this.#names.at(-1) ?? null;
  }

  /** How many versions are newer; 0 for a name that is not known. */
  lag(name: string): number {
    const rank = this.#ranks.get(name);
    return rank === undefined ? 0 : this.#names.length - 1 - rank;
  }
}

function isOlder(name: string, other: string): boolean {
  const [, stem, number] = NUMBERED.exec(name) ?? [];
  const [, otherStem, otherNumber] = NUMBERED.exec(other) ?? [];
  return stem !== undefined && stem === otherStem && Number(number) < Number(otherNumber);
}
