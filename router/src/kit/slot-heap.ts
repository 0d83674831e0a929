/** A binary heap of slots (small numbers from 0 on) that knows the position of each slot. The least key is first. */
export class SlotHeap {
  readonly #heap: number[] = [];
  // By slot: its index in the heap plus 1; 0: not in the heap.
  #keys = new Float64Array(64);
  #places = new Int32Array(64);
  /** Indexes of the heap whose slots `slot` has not shown yet, but whose parents it has; the least key is last. */
  readonly #open: number[] = [];

  get size(): number {
    return this.#heap.length;
  }

  /** The slot with the least key; -1: there is none. */
  get first(): number {
    return this.#heap[0] ?? -1;
  }

  /** NaN: the slot is not in the heap. */
  keyOf(slot: number): number {
    return (this.#places[slot] ?? 0) === 0 ? Number.NaN : this.#keys[slot]!;
  }

  /** Adds the slot or changes its key. */
  set(slot: number, key: number): void {
    if (slot >= this.#keys.length) this.#grow(slot);
    this.#keys[slot] = key;
    const place = this.#places[slot]!;
    const at = place === 0 ? this.#heap.push(slot) - 1 : place - 1;
    this.#sink(slot, this.#rise(slot, at));
  }

  delete(slot: number): void {
    const place = this.#places[slot] ?? 0;
    if (place === 0) return;
    this.#places[slot] = 0;
    const last = this.#heap.pop()!;
    if (last !== slot) this.#sink(last, this.#rise(last, place - 1));
  }

  /** Begins an iteration in order. A change of the heap ends it. */
  start(): void {
    this.#open.length = 0;
    if (this.#heap.length > 0) this.#open.push(0);
  }

  /** The present slot of the iteration; -1 after the last one. */
  get slot(): number {
    const { length } = this.#open;
    return length === 0 ? -1 : this.#heap[this.#open[length - 1]!]!;
  }

  next(): void {
    const at = this.#open.pop()!;
    this.#show(2 * at + 1);
    this.#show(2 * at + 2);
  }

  #show(at: number): void {
    if (at >= this.#heap.length) return;
    const open = this.#open;
    const key = this.#keys[this.#heap[at]!]!;
    let place = open.push(at) - 1;
    for (; place > 0 && this.#keys[this.#heap[open[place - 1]!]!]! < key; place--) open[place] = open[place - 1]!;
    open[place] = at;
  }

  /** @returns the index that the slot has come to */
  #rise(slot: number, from: number): number {
    const key = this.#keys[slot]!;
    let at = from;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const other = this.#heap[parent]!;
      if (this.#keys[other]! <= key) break;
      this.#put(other, at);
      at = parent;
    }
    this.#put(slot, at);
    return at;
  }

  #sink(slot: number, from: number): void {
    const heap = this.#heap;
    const keys = this.#keys;
    const key = keys[slot]!;
    let at = from;
    for (let child = 2 * at + 1; child < heap.length; child = 2 * at + 1) {
      if (child + 1 < heap.length && keys[heap[child + 1]!]! < keys[heap[child]!]!) child++;
      if (keys[heap[child]!]! >= key) break;
      this.#put(heap[child]!, at);
      at = child;
    }
    this.#put(slot, at);
  }

  #put(slot: number, at: number): void {
    this.#heap[at] = slot;
    this.#places[slot] = at + 1;
  }

  #grow(slot: number): void {
    const slots = Math.max(slot + 1, 2 * this.#keys.length);
    const [keys, places] = [this.#keys, this.#places];
    this.#keys = new Float64Array(slots);
    this.#places = new Int32Array(slots);
    this.#keys.set(keys);
    this.#places.set(places);
  }
}
