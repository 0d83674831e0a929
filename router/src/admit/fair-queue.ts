import type { RequestHead } from '../wire/request-head.ts';
import { type KeyPlace, headerKeyText } from '../classify/routing-keys.ts';
import { LinkedList, type ListNode } from '../kit/linked-list.ts';

/** The queued requests of one key, in order of arrival. */
interface Line<T> {
  readonly key: string;
  readonly waiting: LinkedList<Ticket<T>>;
  turn: ListNode<Line<T>> | null;
}

export interface Ticket<T> {
  readonly item: T;
  readonly line: Line<T>;
  /** null: not in the queue. */
  link: ListNode<Ticket<T>> | null;
}

/**
 * A queue in which keys take turns, regardless of how many requests wait for each; within a key in order of arrival. A new key takes its
 * turn after all others. Every operation is O(1).
 */
export class FairQueue<T> {
  size = 0;
  readonly #lines = new Map<string, Line<T>>();
  readonly #turns = new LinkedList<Line<T>>();

  enter(item: T, key: string): Ticket<T> {
    let line = this.#lines.get(key);
    if (line === undefined) {
      line = { key, waiting: new LinkedList<Ticket<T>>(), turn: null };
      line.turn = this.#turns.push(line);
      this.#lines.set(key, line);
    }
    const ticket: Ticket<T> = { item, line, link: null };
    ticket.link = line.waiting.push(ticket);
    this.size++;
    return ticket;
  }

  /** @returns null: the queue is empty */
  next(): T | null {
    const turn = this.#turns.first;
    if (turn === null) return null;
    const line = turn.value;
    const ticket = line.waiting.first!.value;
    this.leave(ticket);
    if (line.waiting.first !== null) {
      this.#turns.remove(turn);
      line.turn = this.#turns.push(line);
    }
    return ticket.item;
  }

  /** @returns false: it was not in the queue */
  leave(ticket: Ticket<T>): boolean {
    const { line, link } = ticket;
    if (link === null) return false;
    ticket.link = null;
    line.waiting.remove(link);
    this.size--;
    if (line.waiting.first === null) {
      this.#turns.remove(line.turn!);
      this.#lines.delete(line.key);
    }
    return true;
  }
}

/**
 * The key of a request in the queue: its tenant's, else its session's, else ''. Only headers are read, because the body may not have
 * arrived.
 */
export function fairKeys(places: readonly KeyPlace[]): (head: RequestHead) => string {
  const inHeaders = places.filter((place) => place.in === 'header');
  const inOrder = ['tenant', 'session'].flatMap((kind) => inHeaders.filter((place) => place.kind === kind));
  return (head) => {
    for (const { kind, name } of inOrder) {
      const value = head.get(name);
      // The kind is part of the key, because a tenant and a session may have the same name.
      if (value !== undefined && value !== '') return `${kind}:${headerKeyText(value)}`;
    }
    return '';
  };
}
