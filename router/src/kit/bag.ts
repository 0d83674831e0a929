/** What can be in one bag at a time. */
export interface Bagged {
  /** Its place there; -1: in none. The bag's own. */
  bagAt: number;
}

/**
 * A set of what comes and goes with every request.
 *
 * `Set` and `Map` are no good for that: they move to a new table each time the old one has filled up with deleted entries, and V8 links
 * the old table to the new one. Once a full collection has moved a table to the old generation, that link keeps the next
 * table alive, and so on: all that was ever in them survives until the next full collection, and a scavenge takes 50 times as long.
 */
export class Bag<T extends Bagged> implements Iterable<T> {
  readonly #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  has(item: T): boolean {
    // V8 looks for an element before the first one in all the slow ways there are.
    return item.bagAt >= 0 && this.#items[item.bagAt] === item;
  }

  add(item: T): void {
    if (!this.has(item)) item.bagAt = this.#items.push(item) - 1;
  }

  /** @returns whether it was in there */
  delete(item: T): boolean {
    if (!this.has(item)) return false;
    const at = item.bagAt;
    const last = this.#items.pop()!;
    item.bagAt = -1;
    if (last === item) return true;
    this.#items[at] = last;
    last.bagAt = at;
    return true;
  }

  /** Those that are in it now: they may leave meanwhile. */
  [Symbol.iterator](): Iterator<T> {
    return [...this.#items].values();
  }
}
