import type { Exchange, KeyKind, RoutingKey } from '../exchange.ts';
import type { RequestHead } from '../wire/request-head.ts';
import { gatewayHeaders } from '../classify/gateway-headers.ts';
import { type KeyPlace, headerKeyText } from '../classify/routing-keys.ts';
import { LinkedList, type ListNode } from '../kit/linked-list.ts';

/** The queued requests of one key and priority, in order of arrival. */
interface Line<T> {
  readonly key: string;
  readonly band: Band<T>;
  readonly waiting: LinkedList<Ticket<T>>;
  turn: ListNode<Line<T>> | null;
}

/** The lines of one priority. */
interface Band<T> {
  readonly priority: number;
  readonly lines: Map<string, Line<T>>;
  readonly turns: LinkedList<Line<T>>;
}

export interface Ticket<T> {
  readonly item: T;
  readonly line: Line<T>;
  /** null: not in the queue. */
  link: ListNode<Ticket<T>> | null;
}

/**
 * A queue in which keys take turns, regardless of how many requests wait for each; within a key in order of arrival. A new key takes its
 * turn after all others. A higher priority goes first, before all keys of lower ones. Every operation is O(number of priorities).
 */
export class FairQueue<T> {
  size = 0;
  /** The highest priority first; none is empty. */
  readonly #bands: Band<T>[] = [];

  enter(item: T, key: string, priority = 0): Ticket<T> {
    const band = this.#bandOf(priority);
    let line = band.lines.get(key);
    if (line === undefined) {
      line = { key, band, waiting: new LinkedList<Ticket<T>>(), turn: null };
      line.turn = band.turns.push(line);
      band.lines.set(key, line);
    }
    const ticket: Ticket<T> = { item, line, link: null };
    ticket.link = line.waiting.push(ticket);
    this.size++;
    return ticket;
  }

  /** @returns null: the queue is empty */
  next(): T | null {
    const band = this.#bands[0];
    if (band === undefined) return null;
    const turn = band.turns.first!;
    const line = turn.value;
    const ticket = line.waiting.first!.value;
    this.leave(ticket);
    if (line.waiting.first !== null) {
      band.turns.remove(turn);
      line.turn = band.turns.push(line);
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
    const { band } = line;
    if (line.waiting.first === null) {
      band.turns.remove(line.turn!);
      band.lines.delete(line.key);
    }
    if (band.lines.size === 0) this.#bands.splice(this.#bands.indexOf(band), 1);
    return true;
  }

  #bandOf(priority: number): Band<T> {
    const at = this.#bands.findIndex((band) => band.priority <= priority);
    const found = at < 0 ? undefined : this.#bands[at];
    if (found?.priority === priority) return found;
    const band: Band<T> = { priority, lines: new Map(), turns: new LinkedList() };
    this.#bands.splice(at < 0 ? this.#bands.length : at, 0, band);
    return band;
  }
}

/**
 * The key of a request in the queue: the tenant that a plugin has set, else its fairness id, else its tenant's, else the session that a
 * plugin has set, else its session's, else ''. Of the request only headers are read, because the body may not have arrived.
 */
export function fairKeys(places: readonly KeyPlace[]): (x: Pick<Exchange, 'head' | 'key'>) => string {
  const headersOf = (kind: KeyKind) => places.filter((place) => place.in === 'header' && place.kind === kind);
  const owners = [...gatewayHeaders.fairnessId.map((name) => ({ kind: 'fairness', name })), ...headersOf('tenant')];
  const sessions = headersOf('session');
  return ({ head, key }) =>
    pluginsKey(key, 'tenant') || keyIn(head, owners) || pluginsKey(key, 'session') || keyIn(head, sessions);
}

/** Before a request is admitted only plugins have set a key. */
const pluginsKey = (key: RoutingKey | null, kind: KeyKind): string =>
  key?.kind === kind ? `${kind}:${key.value}` : '';

function keyIn(head: RequestHead, places: readonly { readonly kind: string; readonly name: string }[]): string {
  for (const { kind, name } of places) {
    const value = head.get(name);
    // The kind is part of the key, because a tenant and a session may have the same name.
    if (value !== undefined && value !== '') return `${kind}:${headerKeyText(value)}`;
  }
  return '';
}
