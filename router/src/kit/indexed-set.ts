export interface IndexedSetMember {
  /** -1: not in a set. Only the set writes it. */
  setIndex: number;
}

/**
 * A set whose members change with every request. `Set` and `Map` move to a new table when the old one is full of deleted entries, and V8
 * links the old table to the new one. When a full collection has promoted a table to the old generation, that link keeps all later tables
 * and their entries alive until the next full collection, and a scavenge takes 50 times as long.
 */
export class IndexedSet<T extends IndexedSetMember> implements Iterable<T> {
  readonly #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  has(item: T): boolean {
    // The test for -1 comes first, because V8 is slow at negative indexes.
    return item.setIndex >= 0 && this.#items[item.setIndex] === item;
  }

  add(item: T): void {
    if (!this.has(item)) item.setIndex = this.#items.push(item) - 1;
  }

  /** @returns whether it was a member */
  delete(item: T): boolean {
    if (!this.has(item)) return false;
    const at = item.setIndex;
    const last = this.#items.pop()!;
    item.setIndex = -1;
    if (last === item) return true;
    this.#items[at] = last;
    last.setIndex = at;
    return true;
  }

  /** A copy: members may be removed during the iteration. */
  [Symbol.iterator](): Iterator<T> {
    return [...this.#items].values();
  }
}
