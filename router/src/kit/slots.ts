/** Items under numbers of its own, which are used again. For what comes and goes with every request, as `IndexedSet`; a `Map` is no good there. */
export class Slots<T> {
  readonly #items: (T | undefined)[] = [];
  readonly #free: number[] = [];

  get size(): number {
    return this.#items.length - this.#free.length;
  }

  /** @returns its number, from 0 on */
  put(item: T): number {
    const slot = this.#free.pop() ?? this.#items.length;
    this.#items[slot] = item;
    return slot;
  }

  /** What is under this number; nothing is any more then. */
  take(slot: number): T | undefined {
    const item = this.#items[slot];
    if (item === undefined) return undefined;
    this.#items[slot] = undefined;
    this.#free.push(slot);
    return item;
  }

  /** All of them. */
  takeAll(): T[] {
    const all = this.#items.filter((item) => item !== undefined);
    this.#items.length = 0;
    this.#free.length = 0;
    return all;
  }
}
