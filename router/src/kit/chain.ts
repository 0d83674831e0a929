/** One member of a chain. */
export interface Link<T> {
  readonly value: T;
  previous: Link<T> | null;
  next: Link<T> | null;
}

/** A doubly linked list: for lines that people also leave from the middle. (A Set is slow at its front once it has shrunk.) */
export class Chain<T> implements Iterable<T> {
  size = 0;
  #first: Link<T> | null = null;
  #last: Link<T> | null = null;

  get first(): Link<T> | null {
    return this.#first;
  }

  push(value: T): Link<T> {
    const link: Link<T> = { value, previous: this.#last, next: null };
    if (this.#last === null) this.#first = link;
    else this.#last.next = link;
    this.#last = link;
    this.size++;
    return link;
  }

  /** Only a link that is in this chain. */
  remove(link: Link<T>): void {
    const { previous, next } = link;
    if (previous === null) this.#first = next;
    else previous.next = next;
    if (next === null) this.#last = previous;
    else next.previous = previous;
    this.size--;
    // One that got old would keep all that came after it from being collected.
    link.previous = null;
    link.next = null;
  }

  /** The one that was told last may leave meanwhile. */
  *[Symbol.iterator](): Generator<T> {
    for (let link = this.#first; link !== null;) {
      const { value, next } = link;
      yield value;
      link = next;
    }
  }
}
