export interface ListNode<T> {
  readonly value: T;
  previous: ListNode<T> | null;
  next: ListNode<T> | null;
}

/** A doubly linked list for queues with removals in the middle. (The first element of a Set is slow to find after removals.) */
export class LinkedList<T> implements Iterable<T> {
  size = 0;
  #first: ListNode<T> | null = null;
  #last: ListNode<T> | null = null;

  get first(): ListNode<T> | null {
    return this.#first;
  }

  get last(): ListNode<T> | null {
    return this.#last;
  }

  /** @param previous a node of this list; null: the value becomes the first one */
  push(value: T, previous: ListNode<T> | null = this.#last): ListNode<T> {
    const link: ListNode<T> = { value, previous: null, next: null };
    this.#link(link, previous);
    return link;
  }

  /** Only for a node of this list. `previous`: another one of it; null: the node becomes the first one. */
  move(link: ListNode<T>, previous: ListNode<T> | null): void {
    this.remove(link);
    this.#link(link, previous);
  }

  /** Only for a node of this list. */
  remove(link: ListNode<T>): void {
    const { previous, next } = link;
    if (previous === null) this.#first = next;
    else previous.next = next;
    if (next === null) this.#last = previous;
    else next.previous = previous;
    this.size--;
    // A removed node would keep all later ones alive.
    link.previous = null;
    link.next = null;
  }

  /** The current value may be removed during the iteration. */
  *[Symbol.iterator](): Generator<T> {
    for (let link = this.#first; link !== null;) {
      const { value, next } = link;
      yield value;
      link = next;
    }
  }

  #link(link: ListNode<T>, previous: ListNode<T> | null): void {
    const next = previous === null ? this.#first : previous.next;
    link.previous = previous;
    link.next = next;
    if (previous === null) this.#first = link;
    else previous.next = link;
    if (next === null) this.#last = link;
    else next.previous = link;
    this.size++;
  }
}
