/**
 * Numbers for versions of weights, so that "five older" means something: a version that is a whole number is that number; any
 * other comes after all that were seen before it.
 */
export class Versions {
  /** The newest seen; -1 before any. */
  newest = -1;
  readonly #named = new Map<string, number>();

  ordinalOf(version: string): number {
    if (/^\d{1,15}$/.test(version)) {
      const number = Number(version);
      this.newest = Math.max(this.newest, number);
      return number;
    }
    let ordinal = this.#named.get(version);
    if (ordinal === undefined) this.#named.set(version, (ordinal = ++this.newest));
    return ordinal;
  }
}
