// A binary heap: the smallest key first, and among equal keys the smallest tie-breaker.

export class EventQueue<T> {
  readonly #keys: number[] = [];
  readonly #ties: number[] = [];
  readonly #items: T[] = [];
  #pushed = 0;

  get size(): number {
    return this.#items.length;
  }

  /** Key of the first item; `Infinity` if empty. */
  get firstKey(): number {
    return this.#keys.length > 0 ? this.#keys[0]! : Infinity;
  }

  get first(): T | undefined {
    return this.#items[0];
  }

  /** @param tie order among equal keys; the order of the pushes when left out */
  push(key: number, item: T, tie: number = this.#pushed++): void {
    const keys = this.#keys;
    const ties = this.#ties;
    const items = this.#items;
    let hole = items.length;
    keys.push(key);
    ties.push(tie);
    items.push(item);
    while (hole > 0) {
      const parent = (hole - 1) >> 1;
      const parentKey = keys[parent]!;
      if (parentKey < key || (parentKey === key && ties[parent]! <= tie)) break;
      keys[hole] = parentKey;
      ties[hole] = ties[parent]!;
      items[hole] = items[parent]!;
      hole = parent;
    }
    keys[hole] = key;
    ties[hole] = tie;
    items[hole] = item;
  }

  pop(): T | undefined {
    const first = this.#items[0];
    const key = this.#keys.pop();
    const tie = this.#ties.pop();
    const item = this.#items.pop();
    if (key !== undefined && this.#items.length > 0) this.#sink(key, tie!, item!);
    return first;
  }

  clear(): void {
    this.#keys.length = 0;
    this.#ties.length = 0;
    this.#items.length = 0;
  }

  /** Puts an item into the root and lets smaller ones rise past it. */
  #sink(key: number, tie: number, item: T): void {
    const keys = this.#keys;
    const ties = this.#ties;
    const items = this.#items;
    const size = items.length;
    let hole = 0;
    for (let child = 1; child < size; child = 2 * hole + 1) {
      const right = child + 1;
      if (right < size) {
        const leftKey = keys[child]!;
        const rightKey = keys[right]!;
        if (rightKey < leftKey || (rightKey === leftKey && ties[right]! < ties[child]!)) child = right;
      }
      const childKey = keys[child]!;
      if (key < childKey || (key === childKey && tie <= ties[child]!)) break;
      keys[hole] = childKey;
      ties[hole] = ties[child]!;
      items[hole] = items[child]!;
      hole = child;
    }
    keys[hole] = key;
    ties[hole] = tie;
    items[hole] = item;
  }
}
