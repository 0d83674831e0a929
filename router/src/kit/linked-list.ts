/** One member of a chain. */
export interface ListNode<T> {
  readonly value: T;
  previous: ListNode<T> | null;
  next: ListNode<T> | null;
}

/** A doubly linked list for queues with removals in the middle. (A Set is slow at its front once it has shrunk.) */
export class LinkedList<T> implements Iterable<T> {
  size = 0;
  #first: ListNode<T> | null = null;
  #last: ListNode<T> | null = null;

  get first(): ListNode<T> | null {
    return this.#first;
  }

  push(value: T): ListNode<T> {
    const link: ListNode<T> = { value, previous: this.#last, next: null };
    if (this.#last === null) this.#first = link;
    else this.#last.next = link;
    this.#last = link;
    this.size++;
    return link;
  }

  /** Only for a node of this list. */
  remove(link: ListNode<T>): void {
    const { previous, next } = link;
    if (previous === null) this.#first = next;
    else previous.next = next;
    if (next === null) this.#last = previous;
    else next.previous = previous;
    this.size--;
    // An old node would keep all later ones alive.
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
}
